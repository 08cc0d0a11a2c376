"""A spool in a file: what was kept is there after a crash at any byte, and nothing else is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.file import FileSpool
from headrace.dispatch.spool.frames import MAGIC
from headrace.dispatch.spool.port import (
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    SpoolChange,
    SpoolContents,
)

CHANGES: list[SpoolChange] = [
    JobPut("a", b"first", 1),
    JobPut("b", b"", 2),
    JobSent("a", 3, 17),
    JobPut("c", b"third", 3),
]


def opened(path: Path, **options: Any) -> tuple[FileSpool, SpoolContents]:
    spool = FileSpool(path, **options)
    return spool, spool.recover()


def reopened(path: Path) -> SpoolContents:
    spool, entries = opened(path)
    spool.close()
    return entries


def test_what_was_put_and_not_done_is_there_after_a_restart(tmp_path: Path) -> None:
    spool, entries = opened(tmp_path / "new" / "jobs.spool")
    assert not entries.jobs
    spool.write([*CHANGES, JobDone("b"), JobSent("c", 1, 2), JobReturned("c"), DoneRead(0, 5)])
    spool.close()
    entries = reopened(tmp_path / "new" / "jobs.spool")
    assert list(entries.jobs) == ["a", "c"]
    assert (entries.jobs["a"].value, entries.jobs["a"].sent) == (b"first", (3, 17))
    assert entries.jobs["c"].sent is None
    assert entries.read == {0: 5}
    assert entries.value_bytes == len(b"first" + b"third")


def test_the_node_keeps_its_name(tmp_path: Path) -> None:
    first, _ = opened(tmp_path / "jobs.spool")
    name = first.node
    first.close()
    again, _ = opened(tmp_path / "jobs.spool")
    assert again.node == name != ""
    again.close()


def test_a_tail_torn_at_any_byte_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    sizes = [path.stat().st_size]
    for change in CHANGES:
        spool.write([change])
        sizes.append(path.stat().st_size)
    spool.close()
    whole = path.read_bytes()
    for cut in range(sizes[-3], len(whole)):
        path.write_bytes(whole[:cut])
        kept = sum(size <= cut for size in sizes) - 1
        expected = SpoolContents()
        expected.apply(CHANGES[:kept])
        assert reopened(path) == expected
        # What is written behind a torn tail is found again.
        spool, _ = opened(path)
        spool.write([JobPut("new", b"x", 9)])
        spool.close()
        assert reopened(path).jobs["new"].value == b"x"


@pytest.mark.parametrize(
    "garbage", [b"\0" * 100, bytes(range(256)) * 3, b"\xa7" * 64], ids=["zeros", "bytes", "marks"]
)
def test_garbage_behind_the_end_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    spool.write(CHANGES)
    spool.close()
    path.write_bytes(path.read_bytes() + garbage)
    assert list(reopened(path).jobs) == ["a", "b", "c"]


def test_a_flipped_bit_costs_one_change_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    spool.write([CHANGES[0]])
    damaged_at = path.stat().st_size + 12
    spool.write(CHANGES[1:])
    spool.close()
    data = bytearray(path.read_bytes())
    data[damaged_at] ^= 0x40
    path.write_bytes(data)
    spool, entries = opened(path)
    assert list(entries.jobs) == ["a", "c"]
    assert spool.damaged_bytes > 0
    spool.close()


def test_a_payload_that_is_a_spool_itself_is_never_taken_for_frames(tmp_path: Path) -> None:
    inner = tmp_path / "inner.spool"
    spool, _ = opened(inner)
    spool.write(CHANGES)
    spool.close()
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    spool.write([JobPut("outer", inner.read_bytes(), 1)])
    spool.close()
    path.write_bytes(path.read_bytes()[:-1])
    assert not reopened(path).jobs


def test_compaction_keeps_what_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path, sync="never", compact_bytes_min=10_000)
    spool.write([JobPut("old", b"kept", 0), JobSent("old", 1, 1), DoneRead(0, 7)])
    largest = 0
    for number in range(1000):
        spool.write([JobPut(str(number), b"x" * 100, number)])
        spool.write([JobDone(str(number))])
        largest = max(largest, path.stat().st_size)
    assert spool.compactions > 1
    assert largest < 12_000
    spool.write([JobPut("last", b"new", 1)])
    spool.close()
    entries = reopened(path)
    assert list(entries.jobs) == ["old", "last"]
    assert (entries.jobs["old"].sent, entries.read) == ((1, 1), {0: 7})


def test_a_crash_in_a_compaction_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    spool.write(CHANGES)
    spool.close()
    beside = path.with_name("jobs.spool.new")
    beside.write_bytes(MAGIC)
    assert list(reopened(path).jobs) == ["a", "b", "c"]
    assert not beside.exists()


def test_a_second_process_is_refused_with_a_hint(tmp_path: Path) -> None:
    spool, _ = opened(tmp_path / "jobs.spool")
    with pytest.raises(SpoolBroken, match="spool of its own"):
        opened(tmp_path / "jobs.spool")
    spool.close()


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    for text in ("these are my notes, and no spool at all", "short"):
        path = tmp_path / f"{len(text)}.txt"
        path.write_text(text)
        with pytest.raises(SpoolBroken, match="is not a spool"):
            opened(path)
        assert path.read_text() == text


def test_what_could_not_be_kept_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    spool.write([JobPut("a", b"kept", 1)])
    with monkeypatch.context() as patch:

        def fail(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(SpoolBroken, match="No space left"):
            spool.write([JobPut("b", b"refused", 2)])
    spool.write([JobPut("c", b"kept again", 3)])
    spool.close()
    assert list(reopened(path).jobs) == ["a", "c"]


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_rewrite_that_fails_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path, sync="never", compact_bytes_min=2_000)
    spool.write([JobPut("old", b"kept", 0)])
    real: Callable[..., Any] = getattr(os, broken)
    beside = path.with_name("jobs.spool.new")
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        if not beside.exists() or (broken == "write" and args[1][:8] != MAGIC):
            return real(*args)
        failures += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        for number in range(100):
            # No submitter learns that its job was not stored.
            spool.write([JobPut(str(number), b"x" * 100, number)])
            spool.write([JobDone(str(number))])
    # Not with every write, either.
    assert 0 < failures < 10
    spool.write([JobPut("last", b"new", 1)])
    for number in range(1_000):
        spool.write([JobPut(str(number), b"x" * 100, number), JobDone(str(number))])
    assert spool.compactions > 0
    spool.close()
    assert list(reopened(path).jobs) == ["old", "last"]


def test_after_a_rewrite_nothing_goes_to_the_old_file_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path, compact_bytes_min=1_000)
    with monkeypatch.context() as patch:
        real = os.open

        def fail(name: Any, *args: Any) -> int:
            if name == path.parent:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(name, *args)

        patch.setattr(os, "open", fail)
        spool.write([JobPut("big", b"x" * 2_000, 1), JobDone("big")])
        # The file's new name is not durable, so nothing is.
        with pytest.raises(SpoolBroken, match="Too many open files"):
            spool.write([JobPut("a", b"refused", 2)])
    spool.write([JobPut("b", b"kept", 3)])
    spool.close()
    assert list(reopened(path).jobs) == ["b"]


def test_a_write_that_cannot_be_undone_at_once_is_undone_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.spool"
    spool, _ = opened(path)
    with monkeypatch.context() as patch:

        def fail(*_args: Any) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(os, "fdatasync", fail)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(SpoolBroken, match="Input/output"):
            spool.write([JobPut("a", b"refused", 1)])
    spool.write([JobPut("b", b"kept", 2)])
    spool.close()
    assert list(reopened(path).jobs) == ["b"]


@pytest.mark.parametrize(("sync", "synced"), [("always", 2), ("interval", 1), ("never", 0)])
def test_the_policy_says_when_a_put_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str, synced: int
) -> None:
    spool = FileSpool(tmp_path / "jobs.spool", sync=sync)
    spool.recover()
    calls: list[int] = []
    monkeypatch.setattr(os, "fdatasync", calls.append)
    spool.write([JobPut("a", b"1", 1)])
    spool.write([JobPut("b", b"2", 2)])
    spool.write([JobSent("a", 0, 0)])
    spool.beat(1_000)
    spool.write([JobPut("c", b"3", 3)])
    # A beat comes with every batch, but `interval` is half a second.
    spool.beat(1_001)
    assert len(calls) == synced + (sync == "always")
    spool.beat(1_500)
    assert len(calls) == synced + (sync != "never")
    spool.close()


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="always, interval, never"):
        FileSpool(tmp_path / "jobs.spool", sync="sometimes")
