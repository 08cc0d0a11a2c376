"""Checkpoint files: Kafka's text, atomic, with checksums beside them."""

from __future__ import annotations

import contextlib
import errno

import pytest
from tests.storage.faulty_files import FaultyFileSystem, PowerCut, PowerLossFileSystem

from headrace.storage.dirs.checkpoints import (
    CLEANER,
    LOG_START,
    RECOVERY_POINT,
    CheckpointFolder,
    CorruptCheckpoint,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)

OFFSETS = {("orders", 0): 12, ("with-dash.and_dot", 3): 0}


def folder(fs: PowerLossFileSystem) -> CheckpointFolder:
    fs.mkdir("/data")
    fs.sync_dir("/")
    return CheckpointFolder(fs, "/data")


def test_text_is_kafkas() -> None:
    data = format_offsets(OFFSETS)
    assert data == b"0\n2\norders 0 12\nwith-dash.and_dot 3 0\n"
    assert parse_offsets(data) == OFFSETS


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b 1\n", b"\xff\n0\n"],
)
def test_what_is_not_whole_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(data)


@pytest.mark.parametrize("data", [b"0\n2\n1 5\n0 9\n", b"0\n2\n0 5\n1 4\n", b"0\n1\n0 5 6\n"])
def test_epochs_that_do_not_ascend_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_epochs(data)


def test_every_flipped_bit_of_a_checkpoint_is_found() -> None:
    fs = PowerLossFileSystem()
    folder(fs).write({RECOVERY_POINT: OFFSETS})
    path = f"/data/{RECOVERY_POINT}"
    for byte in range(fs.size(path)):
        for bit in range(8):
            fs.flip(path, byte, bit)
            with pytest.raises(CorruptCheckpoint):
                folder(fs).read(RECOVERY_POINT)
            fs.flip(path, byte, bit)
    assert folder(fs).read(RECOVERY_POINT) == OFFSETS


def test_damaged_checksums_do_not_hide_sound_checkpoints() -> None:
    fs = PowerLossFileSystem()
    folder(fs).write({RECOVERY_POINT: OFFSETS})
    for byte in range(fs.size("/data/checkpoints.crc32c")):
        fs.flip("/data/checkpoints.crc32c", byte, byte % 8)
        assert folder(fs).read(RECOVERY_POINT) == OFFSETS
        fs.flip("/data/checkpoints.crc32c", byte, byte % 8)


def test_crash_at_any_point_leaves_the_old_or_the_new_content() -> None:
    versions = [{("t", 0): number} for number in range(4)]
    for cut_at in range(80):
        fs = PowerLossFileSystem()
        checkpoints = folder(fs)
        written = -1
        fs.cut_at = fs.operations + cut_at
        try:
            for version in versions:
                checkpoints.write({RECOVERY_POINT: version, LOG_START: version})
                written += 1
            done = True
        except PowerCut:
            done = False
        after = folder(fs.crash())
        for name in (RECOVERY_POINT, LOG_START):
            found = after.read(name).get(("t", 0), -1)
            assert found in (written, written + 1)
        # The disk goes on being used, and crashes again before it settles.
        again = fs.crash()
        survivor = folder(again)
        survivor.read(RECOVERY_POINT)
        again.cut_at = again.operations + cut_at % 12
        with contextlib.suppress(PowerCut):
            survivor.write({RECOVERY_POINT: {("t", 0): 77}})
        folder(again.crash()).read(RECOVERY_POINT)
        if done:
            return
    raise AssertionError("the run was never completed")


def test_unchanged_checkpoints_are_not_written_again() -> None:
    fs = PowerLossFileSystem()
    checkpoints = folder(fs)
    checkpoints.write({RECOVERY_POINT: OFFSETS})
    operations = fs.operations
    checkpoints.write({RECOVERY_POINT: OFFSETS})
    assert fs.operations == operations


def test_files_of_another_writer_can_be_adopted() -> None:
    fs = PowerLossFileSystem()
    checkpoints = folder(fs)
    checkpoints.write({CLEANER: OFFSETS})
    fs.write(f"/data/{CLEANER}", format_offsets({}))
    checkpoints.forget(CLEANER)
    assert folder(fs).read(CLEANER) == {}


def test_partition_metadata_is_kafkas() -> None:
    topic_id = bytes(range(16))
    data = format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(data) == topic_id
    for bad in (b"", b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"\xff"):
        with pytest.raises(CorruptCheckpoint):
            parse_partition_metadata(bad)


@pytest.mark.parametrize("path_has", [RECOVERY_POINT, "crc32c"])
def test_failed_write_is_made_good_by_the_next(path_has: str) -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    fs.mkdir("/data")
    checkpoints = CheckpointFolder(fs, "/data")
    checkpoints.write({RECOVERY_POINT: {("t", 0): 1}})
    fs.fail("write", error=errno.ENOSPC, path_has=path_has)
    with pytest.raises(OSError, match="No space"):
        checkpoints.write({RECOVERY_POINT: {("t", 0): 2}})
    assert CheckpointFolder(fs, "/data").read(RECOVERY_POINT) == {("t", 0): 1}
    checkpoints.write({RECOVERY_POINT: {("t", 0): 2}})
    assert CheckpointFolder(fs, "/data").read(RECOVERY_POINT) == {("t", 0): 2}


def test_rows_of_partitions_that_are_gone_are_dropped() -> None:
    checkpoints = folder(fs := PowerLossFileSystem())
    checkpoints.write({RECOVERY_POINT: OFFSETS, LOG_START: OFFSETS})
    assert checkpoints.knows(("orders", 0))
    checkpoints.keep({("with-dash.and_dot", 3)})
    assert not checkpoints.knows(("orders", 0))
    again = CheckpointFolder(fs.crash(), "/data")
    for name in (RECOVERY_POINT, LOG_START):
        assert again.read(name) == {("with-dash.and_dot", 3): 0}
