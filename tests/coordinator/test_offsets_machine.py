"""Random histories of committed offsets, in and outside of transactions, against a plain model.

The model is the log itself, read in the most literal way: of all that was written for a place and
counts (outside of transactions, or in one that was committed), the last one holds.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Now, Result
from headrace.coordinator.loading import Loader
from headrace.coordinator.records import Change, Commit, OffsetChange, encode
from headrace.coordinator.settings import GroupSettings
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record

GROUPS = ("g", "h")
TOPICS = ("t", "u")
PARTITIONS = (0, 1)
PRODUCERS = (11, 12, 13)
NOW = Now(1_700_000_000_000, 0)

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
partitions = st.sampled_from(PARTITIONS)
producers = st.sampled_from(PRODUCERS)


class Written(NamedTuple):
    """One record of the log; a producer's counts only once its transaction is committed."""

    place: tuple[str, str, int]
    commit: Commit | None
    producer_id: int | None


class OffsetHistory(RuleBasedStateMachine):
    """Commits, transactions, deletions and crashes, in any order."""

    @initialize()
    def begin(self) -> None:
        self.coordinator = GroupCoordinator(GroupSettings(), lambda: "id")
        self.log = bytearray()
        self.offset = 0
        # What counts, and what waits for the end of its transaction, in the order of the log.
        self.written: list[Written] = []

    # What clients do.

    @rule(group=groups, topic=topics, partition=partitions)
    def commit(self, group: str, topic: str, partition: int) -> None:
        self.offset += 1
        place = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self.offset, committed_metadata="m"
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
        )
        self.carry_out(self.coordinator.commits.commit(request, call(8)))

    @rule(group=groups, topic=topics, partition=partitions, producer=producers)
    def commit_in_transaction(self, group: str, topic: str, partition: int, producer: int) -> None:
        self.offset += 1
        place = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self.offset, committed_metadata="m"
        )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )
        self.carry_out(self.coordinator.commits.commit_in_transaction(request, call(3)))

    @rule(producer=producers, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = build_marker(
            EndTransactionMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=0
        )
        self.log += marker
        self.coordinator.end_transaction(producer, committed=committed)
        self.written = [
            entry._replace(producer_id=None) if entry.producer_id == producer else entry
            for entry in self.written
            if committed or entry.producer_id != producer
        ]

    @rule(group=groups, topic=topics, partition=partitions)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        place = OffsetDeleteRequestPartition(partition_index=partition)
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[place])]
        )
        self.carry_out(self.coordinator.commits.delete(request, call(0)))
        assert not self.coordinator.offsets.has(group, topic, partition)

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        known = group in self.coordinator.groups
        error, records = self.coordinator.delete(group)
        assert error is (ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND)
        self.carry_out(Result(records=records))
        assert group not in self.coordinator.groups
        assert not self.coordinator.offsets.partitions(group)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.carry_out(Result(records=list(self.coordinator.commits.forget_topic(topic))))
        for group in GROUPS:
            assert all(name != topic for name, _ in self.coordinator.offsets.partitions(group))

    @rule()
    def crash(self) -> None:
        loader = Loader()
        loader.feed(bytes(self.log))
        self.coordinator = GroupCoordinator(GroupSettings(), lambda: "id")
        assert loader.replay_into(self.coordinator) == 0

    def carry_out(self, result: Result) -> None:
        if not result.records:
            return
        pairs = [encode(change) for change in result.records]
        records = [Record(n, NOW.wall_ms, key, value) for n, (key, value) in enumerate(pairs)]
        producer = result.producer
        if producer is None:
            self.log += build_batch(records)
        else:
            self.log += build_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transactional=True,
            )
        producer_id = None if producer is None else producer.producer_id
        for change in result.records:
            self.coordinator.replay(change, -1 if producer_id is None else producer_id)
            self.note(change, producer_id)

    def note(self, change: Change, producer_id: int | None) -> None:
        if isinstance(change, OffsetChange):
            place = (change.group_id, change.topic, change.partition)
            self.written.append(Written(place, change.commit, producer_id))

    # What must hold.

    @invariant()
    def the_last_that_counts_is_what_is_read(self) -> None:
        for group in GROUPS:
            for topic in TOPICS:
                for partition in PARTITIONS:
                    place = (group, topic, partition)
                    of_place = [w for w in self.written if w.place == place]
                    counting = [w.commit for w in of_place if w.producer_id is None]
                    expected = counting[-1] if counting else None
                    assert self.coordinator.offsets.get(*place) == expected
                    # It may yet change only if something undecided was written after it.
                    undecided = bool(of_place) and of_place[-1].producer_id is not None
                    assert self.coordinator.offsets.is_unstable(*place) is undecided


def call(version: int) -> Call:
    """Who asks; nobody waits for the answer."""
    return Call(object(), version, "client", "/127.0.0.1", NOW)


TestOffsetHistory = OffsetHistory.TestCase
TestOffsetHistory.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
