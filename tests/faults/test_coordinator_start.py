"""A coordinator with a long log answers soon after a start."""

from __future__ import annotations

import time
from pathlib import Path
from struct import Struct

import pytest
from tests.broker.wire import Wire
from tests.faults.processes import BrokerProcess

from benchmarks import process
from headrace.coordinator.partitioning import partition_for
from headrace.coordinator.records import Commit, OffsetChange, encode
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record

GROUP = "busy"
PARTITIONS = 1_000
SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 60.0
# As `offsets.topic.segment.bytes` is by default.
SEGMENT_BYTES = 100 << 20
OFFSET = Struct(">q")


def batches(records_each: int) -> list[bytearray]:
    """One commit of every partition, so many to a batch; base offsets are to be filled in."""
    now_ms = time.time_ns() // 1_000_000
    found = []
    for first in range(0, PARTITIONS, records_each):
        records = [
            Record(
                index - first,
                now_ms,
                *encode(OffsetChange(GROUP, "t", index, Commit(index, 0, "", now_ms))),
            )
            for index in range(first, first + records_each)
        ]
        found.append(build_batch(records))
    return found


def write_commits(folder: Path, rounds: int, records_each: int) -> None:
    """Write the log of a group that committed every partition `rounds` times."""
    for old in folder.glob("0*"):
        old.unlink()
    round_of_batches = batches(records_each)
    offset = 0
    while rounds:
        segment = bytearray()
        base_offset = offset
        while rounds and len(segment) < SEGMENT_BYTES - (1 << 20):
            for batch in round_of_batches:
                OFFSET.pack_into(batch, 0, offset)
                segment += batch
                offset += records_each
            rounds -= 1
        (folder / f"{base_offset:020d}.log").write_bytes(segment)


def asked(wire: Wire) -> OffsetFetchResponseGroup:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    return wire.call(request, OffsetFetchResponse, 8).groups[0]


def processor_seconds_to_answer(broker: BrokerProcess) -> float:
    """Processor time from the start of the process until it tells what the group has committed.

    Not the time that passes, which other tests on the same cores stretch: that is what
    `headrace bench groups --only recovery` measures. It passes no slower than this.
    """
    broker.start()
    deadline_s = time.monotonic() + ANSWER_SECONDS_MAX
    with Wire(broker.bootstrap, timeout=ANSWER_SECONDS_MAX) as wire:
        group = asked(wire)
        while group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline_s
            group = asked(wire)
    took_s = process.cpu_seconds(broker.pid)
    (topic,) = group.topics
    told = {p.partition_index: p.committed_offset for p in topic.partitions}
    assert told == {index: index for index in range(PARTITIONS)}
    return took_s


def make_offsets_topic(broker: BrokerProcess) -> Path:
    """Start once, so that the topic is there; the folder of the group's partition."""
    with broker, Wire(broker.bootstrap) as wire:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        wire.call(request, FindCoordinatorResponse, 4)
        assert broker.stop() == 0
    partitions = len(list(broker.data_dir.glob(f"{CONSUMER_OFFSETS}-*")))
    return broker.data_dir / f"{CONSUMER_OFFSETS}-{partition_for(GROUP, partitions)}"


def test_a_million_commits_are_served_within_five_seconds_of_a_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    write_commits(make_offsets_topic(broker), 1_000_000 // PARTITIONS, records_each=50)
    try:
        # Nothing of the log was there at the last stop: it is checked before it is trusted.
        assert processor_seconds_to_answer(broker) < SECONDS_MAX
        assert broker.stop() == 0
        assert processor_seconds_to_answer(broker) < SECONDS_MAX
    finally:
        broker.kill()


@pytest.mark.long
def test_a_million_commits_of_one_partition_each_are_served_as_soon_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data")
    write_commits(make_offsets_topic(broker), 1_000_000 // PARTITIONS, records_each=1)
    try:
        # A million batches whose checksums were never looked at: that start may take longer.
        processor_seconds_to_answer(broker)
        assert broker.stop() == 0
        assert processor_seconds_to_answer(broker) < SECONDS_MAX
    finally:
        broker.kill()
