"""Slow and failing syncs: no answer before the data are durable, nobody else waits, no retry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.disks import batch_of
from tests.faults.faulty_broker import FaultyBroker
from tests.faults.wire import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Wire,
    fetch_request,
    produce_request,
    request_frame,
)
from tests.waiting import wait_until

from headrace.protocol.api.fetch import FetchResponse
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.produce import ProduceResponse
from headrace.protocol.errors import ErrorCode

SOON_SECONDS = 0.3
"""Long enough for an answer that must not come to come."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FaultyBroker]:
    with FaultyBroker(tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("t", 2)
            wire.create_topic("other")
            assert wire.produce("t", 0, batch_of(["before"])).error_code == 0
        yield broker


def is_silent(wire: Wire) -> bool:
    """Whether nothing comes for a while."""
    wire.socket.settimeout(SOON_SECONDS)
    try:
        wire.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        wire.socket.settimeout(10)
    return False


def heartbeat(wire: Wire) -> ErrorCode:
    """The answer to a heartbeat of a member that nobody knows."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    code = wire.ask(request, 3, HeartbeatResponse).error_code
    return next(known for known in ErrorCode if known == code)


def test_acks_all_is_answered_after_the_sync_and_nobody_else_waits(broker: FaultyBroker) -> None:
    gate = broker.hold("sync", "t-0/")
    with Wire(broker.port) as producer, Wire(broker.port) as other, Wire(broker.port) as reader:
        producer.send(request_frame(produce_request("t", 0, batch_of(["slow"])), PRODUCE_VERSION))
        assert is_silent(producer)
        # Readers do not see it, other partitions are written, heartbeats are answered.
        assert reader.read_values("t", 0) == [(0, b"before")]
        assert other.produce("t", 1, batch_of(["quick"])).error_code == 0
        assert other.produce("other", 0, batch_of(["quick"])).error_code == 0
        assert heartbeat(other) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR)
        assert other.produce("t", 0, batch_of(["acks 1"]), acks=1).error_code == 0
        assert reader.read_values("t", 0) == [(0, b"before")]
        gate.set()
        answer = producer.answer(PRODUCE_VERSION, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    wait_for(broker, 3)


def test_a_waiting_reader_gets_the_record_when_the_sync_is_done(broker: FaultyBroker) -> None:
    gate = broker.hold("sync", "t-0/")
    with Wire(broker.port) as producer, Wire(broker.port) as reader:
        request = fetch_request("t", 0, 1, max_wait_ms=20_000, min_bytes=1)
        reader.send(request_frame(request, FETCH_VERSION))
        producer.send(request_frame(produce_request("t", 0, batch_of(["slow"])), PRODUCE_VERSION))
        assert is_silent(reader)
        gate.set()
        (result,) = reader.answer(FETCH_VERSION, FetchResponse).responses[0].partitions
        assert result.high_watermark == 2
        assert result.records is not None
        assert len(result.records) > 0


def test_a_repeated_batch_is_answered_only_when_its_original_is_synced(
    broker: FaultyBroker,
) -> None:
    gate = broker.hold("sync", "t-0/")
    batch = batch_of(["once"], producer_id=5, base_sequence=0)
    frame = request_frame(produce_request("t", 0, batch), PRODUCE_VERSION)
    with Wire(broker.port) as first, Wire(broker.port) as second:
        first.send(frame)
        assert is_silent(first)
        second.send(frame)
        assert is_silent(second)
        gate.set()
        offsets = set()
        for wire in (first, second):
            answer = wire.answer(PRODUCE_VERSION, ProduceResponse)
            (result,) = answer.responses[0].partition_responses
            assert result.error_code == 0
            offsets.add(result.base_offset)
        assert offsets == {1}
        assert second.read_values("t", 0) == [(0, b"before"), (1, b"once")]


def test_a_failed_sync_takes_the_log_dir_offline_and_is_never_retried(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'good'},{tmp_path / 'bad'}"
    with FaultyBroker(tmp_path / "good", {"log.dirs": dirs}) as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("t", 4)
            for partition in range(4):
                assert wire.produce("t", partition, batch_of(["before"])).error_code == 0
            places = {
                partition: "bad" if (tmp_path / "bad" / f"t-{partition}").exists() else "good"
                for partition in range(4)
            }
            assert set(places.values()) == {"good", "bad"}
            broker.disk.fail("sync", path_has="/bad/")
            victim = next(number for number, place in places.items() if place == "bad")
            refused = wire.produce("t", victim, batch_of(["lost"]))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            broker.disk.calls.clear()
            for partition, place in places.items():
                answer = wire.produce("t", partition, batch_of(["after"]))
                good = place == "good"
                assert (answer.error_code == 0) is good
                if not good:
                    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    values = [value for _, value in wire.read_values("t", partition)]
                    assert values == [b"before", b"after"]
            assert not [path for call, path in broker.disk.calls if "/bad/" in path]
        broker.disk.heal()


def test_after_a_restart_what_the_failed_sync_wrote_is_there_or_not_but_never_half(
    tmp_path: Path,
) -> None:
    with FaultyBroker(tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("t")
            assert wire.produce("t", 0, batch_of(["before"])).error_code == 0
            broker.disk.fail("sync", path_has="t-0/")
            assert wire.produce("t", 0, batch_of(["maybe", "so"])).error_code != 0
        broker.disk.heal()
        broker.restart()
        with Wire(broker.port) as wire:
            values = [value for _, value in wire.read_values("t", 0)]
            assert values in ([b"before"], [b"before", b"maybe", b"so"])
            assert wire.produce("t", 0, batch_of(["after"])).error_code == 0


def wait_for(broker: FaultyBroker, end_offset: int) -> None:
    """Wait until readers see everything up to an offset."""
    with Wire(broker.port) as wire:
        wait_until(
            lambda: len(wire.read_values("t", 0)) == end_offset, f"offset {end_offset} is visible"
        )
