"""A full disk: a retriable error, nothing half written, reads go on, and no restart is needed."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults.clients import read_topic
from tests.faults.disks import batch_of
from tests.faults.faulty_broker import FaultyBroker
from tests.faults.processes import BrokerProcess
from tests.faults.wire import Wire

from headrace.protocol.errors import ErrorCode
from headrace.storage.verify import Severity, verify

DISK_BYTES = 24 << 20
VALUE_BYTES = 300_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, small enough to be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root; the port's test below stands in")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_file_system_recovers_without_a_restart(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with BrokerProcess(small_disk / "data") as broker, Wire(broker.port) as wire:
        wire.create_topic("t")
        # Room for a few batches only.
        filler.write_bytes(bytes(DISK_BYTES - (3 << 20) - used_bytes(small_disk)))
        stored = []
        refused = 0
        for number in range(30):
            value = f"{number}:".ljust(VALUE_BYTES, "x")
            answer = wire.produce("t", 0, batch_of([value]))
            if answer.error_code == 0:
                stored.append((answer.base_offset, value.encode()))
            else:
                refused += 1
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                # Readers and everybody else are served as before.
                assert wire.read_values("t", 0) == stored
                assert wire.is_answered()
        assert stored
        assert refused
        assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
        filler.unlink()
        answer = wire.produce("t", 0, batch_of(["after"]))
        assert answer.error_code == 0
        assert answer.base_offset == len(stored)
        stored.append((answer.base_offset, b"after"))
        assert wire.read_values("t", 0) == stored
        assert broker.stop() == 0
    assert [f for f in verify(str(small_disk / "data")) if f.severity is Severity.ERROR] == []


def test_a_real_producer_only_waits_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with BrokerProcess(small_disk / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("t")
        filler.write_bytes(bytes(DISK_BYTES - (2 << 20) - used_bytes(small_disk)))
        told: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "batch.size": 400_000,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )
        values = [b"%d:" % number + b"x" * VALUE_BYTES for number in range(20)]
        for value in values:
            producer.produce("t", value, partition=0, on_delivery=lambda e, m: told.append(e))
        while producer.flush(0.1) and len(told) < 3:
            pass
        assert len(told) < len(values)
        filler.unlink()
        assert producer.flush(60) == 0
        assert told == [None] * len(values)
        (operation,) = read_topic(broker.bootstrap, "t", 1, process=9)
        assert [value for _, value in operation.values] == [value.decode() for value in values]


def test_the_ports_full_disk_is_refused_batch_by_batch(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path / "data") as broker, Wire(broker.port) as wire:
        wire.create_topic("t")
        assert wire.produce("t", 0, batch_of(["before"])).error_code == 0
        broker.disk.fail("append", times=3, error=errno.ENOSPC, path_has=".log")
        for _ in range(3):
            answer = wire.produce("t", 0, batch_of(["refused"]))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert wire.read_values("t", 0) == [(0, b"before")]
        assert wire.produce("t", 0, batch_of(["after"])).base_offset == 1
        assert wire.read_values("t", 0) == [(0, b"before"), (1, b"after")]


def used_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
