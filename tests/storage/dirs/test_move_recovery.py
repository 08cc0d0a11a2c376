"""Which of two folders of one partition is the log, and which moves begin again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.batches import append, flush, values
from tests.storage.dirs.moving import TOPIC_ID, manager_on

from headrace.storage import LogDirError, LogManager, OsFileSystem, names
from headrace.storage.dirs.move_recovery import MoveNote, read_note

HERE = OsFileSystem().boot_id()
BEFORE = "a run of the machine that is over"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 in two log dirs: one record in `a`, two in `b`."""
    for name, count in (("a", 1), ("b", 2)):
        manager = manager_on(OsFileSystem(), str(tmp_path), names=name)
        log = manager.create("t", 0, TOPIC_ID)
        for _ in range(count):
            append(log, name.encode())
        flush(log)
        manager.close()
    return tmp_path


def note(root: Path, name: str, content: bytes) -> None:
    (root / name / "t-0" / names.ARRIVED).write_bytes(content)


def loaded(root: Path, lost: bool = False) -> LogManager:
    manager = manager_on(OsFileSystem(), str(root), load=False)
    if lost:
        manager.lost = {"/away": "id"}
    manager.load()
    return manager


def served(manager: LogManager) -> tuple[str, int] | None:
    """The log dir in which t-0 is, and how many records it has."""
    log = manager.get("t", 0)
    return None if log is None else (Path(manager.dir_of(log).path).name, len(values(log)))


@pytest.mark.parametrize(
    ("content", "winner"),
    [
        (MoveNote(1).encode(), ("b", 2)),
        (MoveNote(1, HERE).encode(), ("b", 2)),
        (MoveNote(1, "").encode() + f"{HERE}\n".encode(), ("b", 2)),
        (MoveNote(1, "").encode() + HERE.encode(), ("a", 1)),
        (MoveNote(1, "").encode() + f"{BEFORE}\n".encode(), ("a", 1)),
        (MoveNote(1, BEFORE).encode(), ("a", 1)),
        (MoveNote(1, "").encode(), ("a", 1)),
        (b"", ("a", 1)),
        (b"1 who", ("a", 1)),
        (b"1 whole", ("a", 1)),
        (b"\xff\0", ("a", 1)),
    ],
)
def test_note_tells_which_folder_is_the_log(
    root: Path, content: bytes, winner: tuple[str, int]
) -> None:
    note(root, "b", content)
    manager = loaded(root)
    assert served(manager) == winner
    manager.close()
    # The other folder is gone, and so is the note.
    assert served(loaded(root)) == winner
    assert not list(root.glob(f"*/t-0/{names.ARRIVED}"))
    assert len(list(root.glob("*/t-0"))) == 1


def test_two_folders_without_a_note_are_left_to_a_person(root: Path) -> None:
    with pytest.raises(LogDirError, match="move one of them elsewhere"):
        loaded(root)
    assert len(list(root.glob("*/t-0"))) == 2


def test_later_move_counts(root: Path) -> None:
    note(root, "a", MoveNote(2).encode())
    note(root, "b", MoveNote(1).encode())
    assert served(loaded(root)) == ("a", 1)


def test_copy_that_is_all_there_is_counts(root: Path) -> None:
    (root / "a" / "t-0").rename(root / "elsewhere")
    note(root, "b", MoveNote(1, BEFORE).encode())
    assert served(loaded(root)) == ("b", 2)


def test_unsure_copy_waits_for_the_log_dir_that_is_missing(root: Path) -> None:
    (root / "a" / "t-0").rename(root / "elsewhere")
    note(root, "b", MoveNote(1, BEFORE).encode())
    manager = loaded(root, lost=True)
    assert served(manager) is None
    manager.close()
    (root / "elsewhere").rename(root / "a" / "t-0")
    again = loaded(root)
    assert served(again) == ("a", 1)
    assert [(place, each.path) for place, each in again.moves.wanted] == [
        (("t", 0), str(root / "b"))
    ]


def test_stale_folder_that_comes_back_with_its_disk_is_not_the_log(root: Path) -> None:
    (root / "a" / "t-0").rename(root / "elsewhere")
    note(root, "b", MoveNote(1, HERE).encode())
    manager = loaded(root, lost=True)
    assert served(manager) == ("b", 2)
    log = manager.get("t", 0)
    assert log is not None
    assert read_note(manager.fs, log.dir) == MoveNote(1)
    manager.close()
    (root / "elsewhere").rename(root / "a" / "t-0")
    assert served(loaded(root)) == ("b", 2)


def test_half_a_copy_goes_and_its_move_begins_again(root: Path) -> None:
    (root / "b" / "t-0").rename(root / "b" / f"t-0.{'0' * 32}-future")
    (root / "b" / f"gone-3.{'1' * 32}-future").mkdir()
    manager = loaded(root)
    assert served(manager) == ("a", 1)
    assert [place for place, _ in manager.moves.wanted] == [("t", 0)]
    purge = manager.begin_purge(1 << 60)
    assert purge is not None
    purge.run()
    assert not list(root.glob("*/*-future"))


def test_copy_stays_while_its_log_may_be_in_a_log_dir_that_is_missing(root: Path) -> None:
    (root / "b" / "t-0").rename(root / "b" / f"other-0.{'0' * 32}-future")
    manager = loaded(root, lost=True)
    assert manager.moves.wanted == []
    assert manager.begin_purge(1 << 60) is None


def test_names_of_future_folders_are_told_from_others() -> None:
    name = names.future_folder_name("a.b-c", 12, "0" * 32)
    assert name == f"a.b-c-12.{'0' * 32}-future"
    assert names.parse_future_folder(name) == ("a.b-c", 12)
    assert names.parse_folder(name) is None
    for other in ("a-1", f"a-1.{'0' * 32}-delete", "a-1.0-future", f"a.{'0' * 32}-future"):
        assert names.parse_future_folder(other) is None
