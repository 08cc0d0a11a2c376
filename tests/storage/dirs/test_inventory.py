"""Log dirs that are new, moved, missing, foreign or copied."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from tests.storage.batches import NOW_MS

from headrace.storage import LogConfig, LogDirError, LogManager, OsFileSystem

CLUSTER = "SGVhZHJhY2VUZXN0c0tmaw"
NODE = 1
T0, T1 = ("t", 0), ("t", 1)


class Dirs:
    """The log dirs of a node over several lives, with what its metadata remembers of them."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.known: Mapping[str, str] = {}

    def opened(
        self,
        partitions: Collection[tuple[str, int]] = (),
        given_up: Collection[str] = (),
        cluster_id: str = CLUSTER,
        node_id: int = NODE,
    ) -> LogManager:
        logs = LogManager(
            OsFileSystem(), [str(path) for path in self.paths], LogConfig(), lambda: NOW_MS
        )
        logs.open()
        try:
            self.known = logs.identify(cluster_id, node_id, self.known, partitions, given_up)
        except LogDirError:
            logs.release()
            raise
        logs.load()
        return logs

    def fill(self) -> None:
        """The first life: one partition in each of two folders."""
        logs = self.opened()
        for topic, partition in (T0, T1):
            logs.create(topic, partition, bytes(16))
        logs.close()


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    made = Dirs(tmp_path / "1", tmp_path / "2")
    made.fill()
    return made


def unmount(path: Path) -> Path:
    """Leave an empty folder; where the disk's content is now."""
    away = path.with_name(path.name + ".away")
    path.rename(away)
    path.mkdir()
    return away


def mount(away: Path, path: Path) -> None:
    shutil.rmtree(path)
    away.rename(path)


def offline(logs: LogManager) -> list[str]:
    return [Path(log_dir.path).name for log_dir in logs.dirs if log_dir.offline_error]


def test_each_folder_keeps_its_id(dirs: Dirs, tmp_path: Path) -> None:
    known = dirs.known
    assert set(known) == {str(tmp_path / "1"), str(tmp_path / "2")}
    assert len(set(known.values())) == 2
    assert f"cluster.id={CLUSTER}\nnode.id=1\n" in (tmp_path / "1" / "meta.properties").read_text()
    dirs.opened({T0, T1}).close()
    assert dirs.known == known


@pytest.mark.parametrize("folder_is_there", [True, False])
def test_disk_that_is_not_mounted_is_offline_and_left_alone(
    dirs: Dirs, tmp_path: Path, caplog: pytest.LogCaptureFixture, folder_is_there: bool
) -> None:
    known = dirs.known
    away = unmount(tmp_path / "2")
    if not folder_is_there:
        (tmp_path / "2").rmdir()
    logs = dirs.opened({T0, T1})
    assert offline(logs) == ["2"]
    assert logs.lost == {str(tmp_path / "2"): known[str(tmp_path / "2")]}
    assert "mount its disk" in caplog.text
    assert f"headrace.log.dirs.lost={known[str(tmp_path / '2')]}" in caplog.text
    assert not (tmp_path / "2" / "headrace.format").exists()
    logs.close()
    assert dirs.known == known
    mount(away, tmp_path / "2")
    logs = dirs.opened({T0, T1})
    assert (offline(logs), logs.lost) == ([], {})
    assert len(logs) == 2


def test_only_disk_that_is_not_mounted_is_no_start(dirs: Dirs, tmp_path: Path) -> None:
    dirs.paths = (tmp_path / "2",)
    unmount(tmp_path / "2")
    with pytest.raises(LogDirError, match=r"no log dir can be used.*mount its disk"):
        dirs.opened({T0, T1})


def test_disk_that_held_nothing_that_is_needed_may_be_replaced(dirs: Dirs, tmp_path: Path) -> None:
    known = dirs.known
    unmount(tmp_path / "2")
    logs = dirs.opened({T0})
    assert (offline(logs), logs.lost) == ([], {})
    assert dirs.known.keys() == known.keys()
    assert dirs.known != known


def test_lost_disk_that_is_given_up_is_new_again(dirs: Dirs, tmp_path: Path) -> None:
    lost = dirs.known[str(tmp_path / "2")]
    unmount(tmp_path / "2")
    logs = dirs.opened({T0, T1}, given_up=[lost])
    assert (offline(logs), logs.lost) == ([], {})
    assert lost not in dirs.known.values()
    assert (tmp_path / "2" / "headrace.format").exists()


def test_folder_left_out_of_the_settings_is_missing(
    dirs: Dirs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dirs.paths = (tmp_path / "1",)
    logs = dirs.opened({T0, T1})
    assert offline(logs) == []
    assert list(logs.lost) == [str(tmp_path / "2")]
    assert f"last seen at {tmp_path / '2'}, is missing" in caplog.text


def test_folder_that_moved_is_the_same(dirs: Dirs, tmp_path: Path) -> None:
    ids = set(dirs.known.values())
    (tmp_path / "2").rename(tmp_path / "3")
    dirs.paths = (tmp_path / "3", tmp_path / "1")
    logs = dirs.opened({T0, T1})
    assert (offline(logs), logs.lost) == ([], {})
    assert set(dirs.known) == {str(tmp_path / "1"), str(tmp_path / "3")}
    assert set(dirs.known.values()) == ids


def test_one_folder_more_is_welcome(dirs: Dirs, tmp_path: Path) -> None:
    dirs.paths = (*dirs.paths, tmp_path / "3")
    logs = dirs.opened({T0, T1})
    assert (offline(logs), logs.lost) == ([], {})
    assert len(set(dirs.known.values())) == 3


def test_one_folder_more_does_not_hide_one_that_is_missing(dirs: Dirs, tmp_path: Path) -> None:
    unmount(tmp_path / "2")
    dirs.paths = (*dirs.paths, tmp_path / "3")
    logs = dirs.opened({T0, T1})
    assert offline(logs) == ["2"]
    assert len(dirs.known) == 3


def test_folder_that_lost_only_its_id_gets_it_back(dirs: Dirs, tmp_path: Path) -> None:
    known = dirs.known
    (tmp_path / "2" / "meta.properties").unlink()
    logs = dirs.opened({T0, T1, ("never-made", 0)})
    assert (offline(logs), logs.lost) == ([], {})
    assert dirs.known == known


def test_folder_that_is_older_than_ids_gets_one(tmp_path: Path) -> None:
    logs = LogManager(OsFileSystem(), [str(tmp_path / "1")], LogConfig(), lambda: NOW_MS)
    logs.open()
    logs.load()
    logs.create("t", 0, bytes(16))
    logs.close()
    dirs = Dirs(tmp_path / "1")
    assert len(dirs.opened({T0})) == 1
    assert len(dirs.known) == 1


@pytest.mark.parametrize(("cluster_id", "node_id"), [("another", NODE), (CLUSTER, 2)])
def test_folder_of_another_cluster_or_node_is_refused(
    dirs: Dirs, cluster_id: str, node_id: int
) -> None:
    with pytest.raises(LogDirError, match="belongs to node 1 of cluster SGVh"):
        dirs.opened({T0, T1}, cluster_id=cluster_id, node_id=node_id)
    assert len(dirs.opened({T0, T1})) == 2


def test_copy_of_a_folder_is_refused(dirs: Dirs, tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    for name in ("meta.properties", "headrace.format"):
        shutil.copy(tmp_path / "2" / name, tmp_path / "3" / name)
    dirs.paths = (*dirs.paths, tmp_path / "3")
    with pytest.raises(LogDirError, match="one is a copy"):
        dirs.opened({T0, T1})
