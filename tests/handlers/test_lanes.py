"""Lanes against a simple model: order by key, no message lost, safe offsets, fair turns."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.handlers.records import FakeRecord

from headrace.client.message import ConsumedRecord
from headrace.handlers.lanes import Item, Lane, Lanes, Track

SIZE_BYTES = 10
OVERHEAD_BYTES = 3


def record_of(offset: int, key: bytes | None = None) -> FakeRecord:
    """A record of the size that all have here."""
    return FakeRecord(0, offset, key, SIZE_BYTES - OVERHEAD_BYTES)


@dataclass
class ModelTrack:
    """What has become of every message of one assignment."""

    track: Track
    next_offset: int = 0
    waiting: list[ConsumedRecord] = field(default_factory=list)
    running: list[ConsumedRecord] = field(default_factory=list)
    done: set[int] = field(default_factory=set)


class LanesMachine(RuleBasedStateMachine):
    """Any mix of arrivals, turns, failures, waits and rebalances."""

    order = "key"

    @initialize()
    def begin(self) -> None:
        self.lanes = Lanes(self.order, OVERHEAD_BYTES)
        self.now_ms = 0
        self.model: dict[Track, ModelTrack] = {}
        self.chunks: list[list[Item]] = []
        self.due_ms: dict[tuple[Track, int], int] = {}

    @rule(topic=st.sampled_from(["a", "b"]), partition=st.integers(0, 2))
    def assign(self, topic: str, partition: int) -> None:
        taken = {(t.topic, t.partition) for t in self.model if t.open}
        if (topic, partition) not in taken:
            track = Track(topic, partition)
            self.model[track] = ModelTrack(track)

    @precondition(lambda self: any(t.open for t in self.model))
    @rule(data=st.data(), keys=st.lists(st.sampled_from([b"x", b"y", b"z", None]), max_size=6))
    def arrive(self, data: st.DataObject, keys: list[bytes | None]) -> None:
        model = self.model[data.draw(st.sampled_from(self.open_tracks()))]
        records = [record_of(model.next_offset + n, key) for n, key in enumerate(keys)]
        model.next_offset += len(keys)
        model.waiting += records
        self.lanes.add(model.track, records)

    @rule(limit=st.integers(1, 7))
    def take(self, limit: int) -> None:
        ready_tracks = {lane.track for lane in self.ready_lanes()}
        chunk = self.lanes.take(limit)
        assert bool(chunk) == bool(ready_tracks)
        if self.order != "latest":
            assert len(chunk) <= limit
            if limit >= len(ready_tracks):
                assert {lane.track for lane, _, _ in chunk} == ready_tracks
        for lane, _, record in chunk:
            model = self.model[lane.track]
            assert lane.track.open
            assert self.may_run(model, record)
            model.waiting.remove(record)
            model.running.append(record)
        self.check_order_within(chunk)
        if chunk:
            self.chunks.append(chunk)

    @precondition(lambda self: bool(self.chunks))
    @rule(data=st.data(), wait_ms=st.sampled_from([0, 0, 5, 50]))
    def settle(self, data: st.DataObject, wait_ms: int) -> None:
        chunk = self.chunks.pop(data.draw(st.integers(0, len(self.chunks) - 1)))
        done = data.draw(st.integers(0, len(chunk)))
        due_ms = self.now_ms + wait_ms if wait_ms and done < len(chunk) else None
        self.lanes.settle(chunk, done, due_ms)
        for index, (lane, sequence, record) in enumerate(chunk):
            model = self.model[lane.track]
            model.running.remove(record)
            if index < done:
                model.done.add(record.offset())
            elif lane.track.open:
                model.waiting.append(record)
                if index == done and due_ms is not None:
                    self.due_ms[lane.track, sequence] = due_ms
        for model in self.model.values():
            model.waiting.sort(key=lambda record: record.offset())

    @rule(ms=st.integers(1, 30))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.lanes.wake(self.now_ms)
        self.due_ms = {key: due for key, due in self.due_ms.items() if due > self.now_ms}

    @precondition(lambda self: any(t.open for t in self.model))
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        track = data.draw(st.sampled_from(self.open_tracks()))
        self.lanes.close(track)
        self.model[track].waiting.clear()

    @invariant()
    def counts_agree(self) -> None:
        waiting = sum(len(model.waiting) for model in self.model.values())
        running = sum(len(model.running) for model in self.model.values())
        assert self.lanes.queued == waiting
        assert self.lanes.busy == running
        assert self.lanes.bytes == (waiting + running) * SIZE_BYTES
        for model in self.model.values():
            assert model.track.queued == len(model.waiting)
            assert model.track.busy == len(model.running)
            assert model.track.bytes == (len(model.waiting) + len(model.running)) * SIZE_BYTES
        assert self.lanes.ready == sum(len(lane.items) for lane in self.ready_lanes())

    @invariant()
    def only_the_safe_prefix_is_committed(self) -> None:
        for model in self.model.values():
            if model.track.open and model.next_offset:
                left = [record.offset() for record in model.waiting + model.running]
                assert model.track.progress.safe_offset() == (min(left or [model.next_offset]))

    def teardown(self) -> None:
        """Whatever happened, everything of open partitions can still be run to its end."""
        while self.chunks:
            chunk = self.chunks.pop()
            self.lanes.settle(chunk, len(chunk))
        self.lanes.wake(1 << 60)
        while chunk := self.lanes.take(3):
            self.lanes.settle(chunk, len(chunk))
            self.lanes.wake(1 << 60)
        assert (self.lanes.messages, self.lanes.bytes, self.lanes.ready) == (0, 0, 0)
        for model in self.model.values():
            if model.track.open and model.next_offset:
                assert model.track.progress.safe_offset() == model.next_offset

    def open_tracks(self) -> list[Track]:
        return [track for track in self.model if track.open]

    def ready_lanes(self) -> list[Lane]:
        return [
            lane for track in self.open_tracks() for lane in track.lanes.values() if lane.listed
        ]

    def lane_of(self, record: ConsumedRecord) -> bytes | None:
        return record.key()

    def may_run(self, model: ModelTrack, record: ConsumedRecord) -> bool:
        """Nothing before it in its lane waits, and nothing of its lane runs in another chunk."""
        lane = self.lane_of(record)
        if lane is None:
            return True
        items = [item for chunk in self.chunks for item in chunk]
        others = [item[2] for item in items if item[0].track is model.track]
        return not any(self.lane_of(r) == lane for r in others) and not any(
            self.lane_of(r) == lane and r.offset() < record.offset() for r in model.waiting
        )

    def check_order_within(self, chunk: list[Item]) -> None:
        seen: dict[tuple[Track, bytes], int] = {}
        for lane, sequence, record in chunk:
            assert (lane.track, sequence) not in self.due_ms
            key = self.lane_of(record)
            if key is not None:
                assert seen.get((lane.track, key), -1) < record.offset()
                seen[lane.track, key] = record.offset()


class PartitionMachine(LanesMachine):
    """One lane per partition."""

    order = "partition"

    def lane_of(self, record: ConsumedRecord) -> bytes | None:
        return b"all"


class UnorderedMachine(LanesMachine):
    """No order at all."""

    order = "none"

    def lane_of(self, record: ConsumedRecord) -> bytes | None:
        return None


class LatestMachine(LanesMachine):
    """Lanes by key that are taken whole."""

    order = "latest"


_SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestByKey = LanesMachine.TestCase
TestByKey.settings = _SETTINGS
TestByPartition = PartitionMachine.TestCase
TestByPartition.settings = _SETTINGS
TestWithoutOrder = UnorderedMachine.TestCase
TestWithoutOrder.settings = _SETTINGS
TestLatest = LatestMachine.TestCase
TestLatest.settings = _SETTINGS


def test_messages_that_come_back_from_a_wait_are_finished_one_by_one() -> None:
    lanes = Lanes("none")
    track = Track("t", 0)
    lanes.add(track, [record_of(n) for n in range(8)])
    chunk = lanes.take(4)
    lanes.settle(chunk, 3, retry_at_ms=5)
    other = lanes.take(3)
    lanes.wake(5)
    # Now 3 stands before 7, and between them they look like a run of two.
    last = lanes.take(2)
    assert [sequence for _, sequence, _ in last] == [3, 7]
    lanes.settle(last, 2)
    assert track.progress.safe_offset() == 4
    lanes.settle(other, 3)
    assert track.progress.safe_offset() == 8


@pytest.mark.parametrize("order", ["none", "partition", "key"])
def test_a_hot_partition_does_not_starve_a_quiet_one(order: str) -> None:
    lanes = Lanes(order)
    hot, quiet = Track("t", 0), Track("t", 1)
    lanes.add(hot, [record_of(n, b"%d" % n) for n in range(1000)])
    lanes.add(quiet, [record_of(0, b"q")])
    first, second = lanes.take(1), lanes.take(1)
    assert {lane.track for lane, _, _ in first + second} == {hot, quiet}


def test_a_chunk_is_shared_out_among_partitions() -> None:
    lanes = Lanes("none")
    tracks = [Track("t", n) for n in range(4)]
    for track in tracks:
        lanes.add(track, [record_of(n) for n in range(100)])
    chunk = lanes.take(40)
    assert [sum(lane.track is track for lane, _, _ in chunk) for track in tracks] == [10] * 4


def test_lanes_of_keys_that_have_nothing_to_do_are_forgotten() -> None:
    lanes = Lanes("key")
    track = Track("t", 0)
    lanes.add(track, [record_of(n, b"%d" % n) for n in range(100)])
    chunk = lanes.take(100)
    lanes.settle(chunk, len(chunk))
    assert not track.lanes


def test_a_late_outcome_of_an_earlier_assignment_changes_nothing() -> None:
    lanes = Lanes("key")
    old = Track("t", 0)
    lanes.add(old, [record_of(5, b"k")])
    chunk = lanes.take(1)
    lanes.close(old)
    new = Track("t", 0)
    lanes.add(new, [record_of(5, b"k")])
    lanes.settle(chunk, 1)
    assert new.progress.safe_offset() == 5
    assert [record.offset() for _, _, record in lanes.take(1)] == [5]
