"""All logs of a broker."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from tests.storage.batches import NOW_MS, append, batch, flush, values
from tests.storage.faulty_files import FaultyFileSystem, PowerLossFileSystem

from headrace.protocol.errors import KafkaError
from headrace.storage import Log, LogConfig, LogDirError, LogManager, OsFileSystem
from headrace.storage.files import FileSystem

TOPIC_ID = bytes(range(16))


def manager(
    *dirs: Path, fs: FileSystem | None = None, config: LogConfig | None = None
) -> LogManager:
    made = LogManager(
        fs or OsFileSystem(), [str(path) for path in dirs], config or LogConfig(), lambda: NOW_MS
    )
    made.open()
    made.load()
    return made


def log_of(logs: LogManager, topic: str = "t", partition: int = 0) -> Log:
    log = logs.get(topic, partition)
    assert log is not None
    return log


def test_logs_are_there_again_after_a_clean_stop(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create("t", 3, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")
    log.high_watermark = 2
    log.delete_records(1)
    logs.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = manager(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = log_of(again, "t", 3)
    assert log.topic_id == TOPIC_ID
    assert (log.start_offset, log.end_offset, log.synced_offset) == (1, 2, 2)
    assert values(log) == [(1, b"b")]
    again.close()


def test_logs_are_recovered_without_a_clean_stop(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    append(logs.create("t", 0, TOPIC_ID), b"a")
    logs.dirs[0].close()  # as a kill would: nothing saved, the lock gone
    assert values(log_of(manager(tmp_path))) == [(0, b"a")]


def test_checkpoint_is_kafkas_and_moves_the_recovery_point(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create("my-topic", 0, TOPIC_ID)
    append(log, b"a")
    logs.checkpoint()
    append(log, b"b")
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nmy-topic 0 1\n"
    assert log.recovery_point == 1
    assert log.synced_offset == 1


def test_checkpoint_of_many_logs_can_be_taken_in_parts(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    for partition in range(5):
        append(logs.create("t", partition, TOPIC_ID), b"v")
    checkpoint = logs.begin_checkpoint()
    for some in (list(logs)[:2], list(logs)[2:]):
        assert checkpoint.begin(some)
        checkpoint.run()
        assert not checkpoint.begin(some)
    assert len(checkpoint) == 5
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    checkpoint.save()
    assert all(log.recovery_point == 0 for log in logs)  # in memory only once it is on disk
    checkpoint.complete()
    assert all(log.recovery_point == 1 for log in logs)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text().count(" 1\n") == 5


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    with pytest.raises(LogDirError, match="in use by another broker"):
        manager(tmp_path)
    logs.close()
    manager(tmp_path).close()


def test_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    manager(tmp_path).close()
    assert (tmp_path / "headrace.format").read_text() == "1\n"
    (tmp_path / "headrace.format").write_text("2\n")
    with pytest.raises(LogDirError, match="format 2"):
        manager(tmp_path)


def test_new_logs_go_to_the_folder_with_the_fewest(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    logs = manager(first, second)
    for partition in range(5):
        logs.create("t", partition, TOPIC_ID)
    counts = [sum(name.startswith("t-") for name in os.listdir(path)) for path in (first, second)]
    assert counts == [3, 2]
    logs.close()
    again = manager(first, second)
    assert len(again) == 5
    again.create("t", 5, TOPIC_ID)
    assert len([name for name in os.listdir(second) if name.startswith("t-")]) == 3


def test_log_in_two_folders_is_refused(tmp_path: Path) -> None:
    for path in ("1", "2"):
        (tmp_path / path / "t-0").mkdir(parents=True)
    with pytest.raises(LogDirError, match="move one of them elsewhere"):
        manager(tmp_path / "1", tmp_path / "2")


def test_strange_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    logs = manager(tmp_path)
    assert len(logs) == 0
    logs.close()
    assert (tmp_path / "notes.txt").exists()


def test_deleted_log_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    append(logs.create("t", 0, TOPIC_ID), b"old")
    logs.delete("t", 0)
    assert logs.get("t", 0) is None
    (name,) = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert name.startswith("t-0.")
    log = logs.create("t", 0, TOPIC_ID)
    assert values(log) == []
    assert logs.begin_purge(NOW_MS) is None
    purge = logs.begin_purge(NOW_MS + LogConfig().file_delete_delay_ms)
    assert purge is not None
    purge.run()
    assert not (tmp_path / name).exists()


def test_deletion_is_completed_after_a_restart(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create("t", 0, TOPIC_ID)
    logs.delete("t", 0)
    logs.close()
    again = manager(tmp_path)
    assert len(again) == 0
    purge = again.begin_purge(NOW_MS)
    assert purge is not None
    purge.run()
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")]


def test_deleting_a_long_topic_name_fits_the_file_system(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create("t" * 249, 0, TOPIC_ID)
    logs.delete("t" * 249, 0)
    assert max(len(name) for name in os.listdir(tmp_path)) <= 255


def test_failed_folder_goes_offline_alone(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path / "1", tmp_path / "2", fs=fs)
    first, second = logs.create("t", 0, TOPIC_ID), logs.create("t", 1, TOPIC_ID)
    for log in (first, second):
        append(log, b"v")
    fs.fail("sync", path_has="/1/", times=99)
    logs.checkpoint()
    assert first.offline_error is not None
    assert logs.dirs[0].offline_error is not None
    with pytest.raises(KafkaError, match="offline"):
        append(first, b"w")
    append(second, b"w")
    assert logs.create("t", 2, TOPIC_ID).dir.startswith(str(tmp_path / "2"))
    logs.close()
    assert not (tmp_path / "1" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "2" / ".kafka_cleanshutdown").exists()


def test_failing_a_partition_takes_its_folder_offline(tmp_path: Path) -> None:
    logs = manager(tmp_path / "1")
    log, other = logs.create("t", 0, TOPIC_ID), logs.create("t", 1, TOPIC_ID)
    assert logs.fail_dir_of(log.dir, OSError(5, "gone")) == str(tmp_path / "1")
    assert other.offline_error is not None
    with pytest.raises(LogDirError, match="offline"):
        logs.create("t", 2, TOPIC_ID)


def test_unusable_folder_does_not_stop_the_others(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fs.fail("mkdir", path_has="/1")
    logs = manager(tmp_path / "1", tmp_path / "2", fs=fs)
    assert logs.dirs[0].offline_error is not None
    logs.create("t", 0, TOPIC_ID)
    fs = FaultyFileSystem()
    fs.fail("mkdir", times=9)
    with pytest.raises(LogDirError, match="no log dir can be used"):
        manager(tmp_path / "3", fs=fs)


def test_damaged_recovery_point_means_a_full_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = manager(tmp_path)
    append(logs.create("t", 0, TOPIC_ID), b"a")
    logs.close()
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(path.read_text().replace("t 0 1", "t 0 3"))
    again = manager(tmp_path)
    assert "checked in full" in caplog.text
    assert values(log_of(again)) == [(0, b"a")]


def test_settings_of_a_topic_are_asked_for_when_loading(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create("t", 0, TOPIC_ID)
    logs.close()
    again = LogManager(OsFileSystem(), [str(tmp_path)], LogConfig(), lambda: NOW_MS)
    again.open()
    again.load({"t": LogConfig(segment_bytes=777)}.__getitem__)
    assert log_of(again).config.segment_bytes == 777


def test_retention_runs_over_all_logs(tmp_path: Path) -> None:
    logs = manager(tmp_path, config=LogConfig(retention_ms=1000))
    for partition in range(3):
        log = logs.create("t", partition, TOPIC_ID)
        append(log, b"v", timestamp=NOW_MS - 5000)
        flush(log)
        log.high_watermark = log.synced_offset
    logs.checkpoint()
    assert logs.run_retention(NOW_MS) == 3
    assert all(log.start_offset == 1 for log in logs)


def test_producers_expire_with_retention(tmp_path: Path) -> None:
    logs = LogManager(
        OsFileSystem(), [str(tmp_path)], LogConfig(), lambda: NOW_MS, producer_expiration_ms=100
    )
    logs.open()
    logs.load()
    log = logs.create("t", 0, TOPIC_ID)
    log.append(batch([b"v"], producer_id=1, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    logs.run_retention(NOW_MS + 99)
    assert len(log.producers) == 1
    logs.run_retention(NOW_MS + 100)
    assert len(log.producers) == 0


def test_truncation_lowers_the_recovery_point_on_disk_first(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create("t", 0, TOPIC_ID)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    logs.checkpoint()
    append(log, b"d")
    under_way = logs.begin_checkpoint()
    assert under_way.begin(logs)
    log.truncate_to(1, NOW_MS)
    under_way.run()
    under_way.save()
    under_way.complete()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"


def test_thousand_logs_load_quickly_after_a_clean_stop(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    for partition in range(1000):
        append(logs.create("t", partition, TOPIC_ID), b"v" * 100)
    logs.close()
    started = time.process_time()  # not the clock on the wall: the machine may be busy
    again = manager(tmp_path, fs=OsFileSystem(open_files_max=100))
    elapsed_s = time.process_time() - started
    assert len(again) == 1000
    assert elapsed_s < 1.5
    assert values(log_of(again, "t", 999)) == [(0, b"v" * 100)]


def disk_manager(fs: FileSystem) -> LogManager:
    return manager(Path("/data"), fs=fs)


def durable(log: Log, *records: bytes) -> None:
    for value in records:
        append(log, value)
    flush(log)
    log.high_watermark = log.synced_offset


def test_recreated_log_inherits_nothing_from_its_namesake() -> None:
    fs = PowerLossFileSystem()
    logs = disk_manager(fs)
    log = logs.create("t", 0, TOPIC_ID)
    durable(log, *[b"old"] * 20)
    log.delete_records(10)
    logs.checkpoint()
    logs.delete("t", 0)
    durable(logs.create("t", 0, TOPIC_ID[::-1]), b"a", b"b")
    assert values(log_of(disk_manager(fs.crash()))) == [(0, b"a"), (1, b"b")]


def test_recreating_many_logs_rewrites_the_checkpoints_once(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path, fs=fs)
    for partition in range(20):
        append(logs.create("t", partition, TOPIC_ID), b"v")
    logs.checkpoint()
    for partition in range(20):
        logs.delete("t", partition)
    fs.calls.clear()
    for partition in range(20):
        logs.create("t", partition, TOPIC_ID)
    rewritten = [path for operation, path in fs.calls if operation == "write"]
    assert sum("recovery-point" in path for path in rewritten) == 1


def test_checkpoint_under_way_does_not_speak_for_a_recreated_log() -> None:
    fs = PowerLossFileSystem()
    logs = disk_manager(fs)
    durable(logs.create("t", 0, TOPIC_ID), *[b"old"] * 20)
    under_way = logs.begin_checkpoint()
    assert under_way.begin(logs)
    logs.delete("t", 0)
    log = logs.create("t", 0, TOPIC_ID)
    durable(log, b"new")
    under_way.run()
    under_way.save()
    under_way.complete()
    assert not [name for name in fs.list(log.dir) if name.endswith(".snapshot")]
    assert values(log_of(disk_manager(fs.crash()))) == [(0, b"new")]


def test_deletion_is_durable_after_its_sync() -> None:
    fs = PowerLossFileSystem()
    logs = disk_manager(fs)
    durable(logs.create("t", 0, TOPIC_ID), b"a")
    logs.delete("t", 0)
    logs.sync_deletions()
    assert len(disk_manager(fs.crash())) == 0


def test_only_folders_of_deleted_logs_are_removed(tmp_path: Path) -> None:
    for name in ("keep-delete", "t-0.mine-delete", f"t-0.{'0' * 32}-delete"):
        (tmp_path / name).mkdir()
    purge = manager(tmp_path).begin_purge(NOW_MS)
    assert purge is not None
    purge.run()
    left = {name for name in os.listdir(tmp_path) if name.endswith("-delete")}
    assert left == {"keep-delete", "t-0.mine-delete"}


def test_failed_creation_can_be_tried_again() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    logs = disk_manager(fs)
    fs.fail("append", error=errno.ENOSPC, path_has="partition.metadata")
    with pytest.raises(OSError, match="No space"):
        logs.create("t", 0, TOPIC_ID)
    assert logs.create("t", 0, TOPIC_ID).end_offset == 0


@pytest.mark.parametrize(
    ("operation", "path_has"),
    [("write", ".snapshot"), ("append", "index"), ("write", "recovery-point"), ("rename", "epoch")],
)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_checkpoint_on_a_full_disk_is_put_off(operation: str, path_has: str, error: int) -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    logs = disk_manager(fs)
    log = logs.create("t", 0, TOPIC_ID)
    durable(log, b"a")
    fs.fail(operation, error=error, path_has=path_has)
    logs.checkpoint()
    assert log.offline_error is None
    logs.checkpoint()
    assert log.recovery_point == 1
    assert fs.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert fs.read("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


def test_retention_on_a_full_disk_is_put_off() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    logs = manager(Path("/data"), fs=fs, config=LogConfig(retention_ms=1000, segment_bytes=100))
    log = logs.create("t", 0, TOPIC_ID)
    durable(log, b"a", b"b", b"c")
    logs.checkpoint()
    fs.fail("rename", nth=2, error=errno.ENOSPC, path_has=".log")
    logs.run_retention(NOW_MS + 5000)
    assert log.offline_error is None
    assert log.start_offset == 1
    assert values(log) == [(1, b"b"), (2, b"c")]
    logs.run_retention(NOW_MS + 5000)
    assert log.start_offset == 3


def test_full_disk_on_stop_leaves_no_mark_of_a_clean_one(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path, fs=fs)
    durable(logs.create("t", 0, TOPIC_ID), b"a")
    fs.fail("write", error=errno.ENOSPC, path_has="log-start", times=9)
    logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert values(log_of(manager(tmp_path))) == [(0, b"a")]


def test_sync_that_fails_on_a_full_disk_is_no_passing_trouble() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    logs = disk_manager(fs)
    log = logs.create("t", 0, TOPIC_ID)
    append(log, b"a")
    fs.fail("sync", error=errno.ENOSPC)
    logs.checkpoint()
    assert log.offline_error is not None


def test_recovery_point_that_could_not_be_written_is_not_believed(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path, fs=fs)
    log = logs.create("t", 0, TOPIC_ID)
    durable(log, b"a")
    fs.fail("write", error=errno.ENOSPC, path_has="recovery-point")
    logs.checkpoint()
    assert (log.recovery_point, log.offline_error) == (0, None)
    logs.checkpoint()
    assert log.recovery_point == 1


def test_older_snapshot_stays_until_the_recovery_point_is_durable(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path, fs=fs)
    log = logs.create("t", 0, TOPIC_ID)

    def snapshots() -> set[str]:
        return {path.name.lstrip("0") for path in Path(log.dir).glob("*.snapshot")}

    durable(log, b"a")
    logs.checkpoint()
    durable(log, b"b")
    fs.fail("write", error=errno.ENOSPC, path_has="recovery-point")
    logs.checkpoint()
    assert snapshots() == {"1.snapshot", "2.snapshot"}
    logs.checkpoint()
    assert snapshots() == {"2.snapshot"}


def test_empty_logs_get_no_files_at_a_checkpoint(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create("t", 0, TOPIC_ID)
    logs.checkpoint()
    assert not list(Path(log.dir).glob("*index"))
    append(log, b"v")
    logs.close()
    assert len(list(Path(log.dir).glob("*index"))) == 2
    assert values(log_of(manager(tmp_path))) == [(0, b"v")]


def test_names_of_deleted_logs_are_forgotten_ahead_of_new_ones(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    logs = manager(tmp_path, fs=fs)
    for partition in range(3):
        append(logs.create("t", partition, TOPIC_ID), b"v")
    logs.checkpoint()
    for partition in range(3):
        logs.delete("t", partition)
    logs.forget_deleted([("t", 0), ("t", 1)])
    fs.calls.clear()
    assert logs.create("t", 0, TOPIC_ID).recovery_point == 0
    assert not [path for operation, path in fs.calls if operation.startswith("sync")]


def test_idle_logs_are_not_saved_again(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = logs.create("t", 0, TOPIC_ID)
    logs.checkpoint()
    assert log.begin_checkpoint() is None
