"""The meter: measures the lag of groups of every kind, in records and in time, on any Kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from headrace.client.admin.groups import MARKERS, GroupRow, list_groups, read_committed
from headrace.client.clock import Clock
from headrace.client.wire.cluster import ClusterClient, CoordinatorOf
from headrace.client.wire.leaders import EARLIEST, LATEST, Isolation, Leaders
from headrace.lag.ages import Ages, NextRecord
from headrace.lag.group_lag import (
    Bounds,
    GroupLag,
    PartitionLag,
    Standing,
    Verdict,
    judge,
)
from headrace.lag.members import SHARE, Described, describe
from headrace.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

# A group with one of these errors is left out; the others are measured.
_GROUP_ERRORS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED)

_log = logging.getLogger("headrace.lag")


class GroupOffset(NamedTuple):
    """The offset of a group in a partition; for a share group, the broker also counts the lag."""

    offset: int | None
    lag: int | None = None


class Meter:
    """Measures repeatedly; what it remembers makes later measurements cheaper.

    OSError and KafkaError mean that the cluster could not be asked; the next call may succeed.
    """

    def __init__(self, cluster: ClusterClient, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._ages = Ages()

    def measure(self, is_wanted: Callable[[GroupRow], bool] = lambda _row: True) -> list[GroupLag]:
        """Measure the wanted groups, sorted by name."""
        rows = [
            row
            for row in list_groups(self._cluster)
            if is_wanted(row) and not row.group.startswith(MARKERS)
        ]
        described = describe(self._cluster, rows)
        offsets: dict[str, dict[TopicPartition, GroupOffset]] = {}
        for row in rows:
            found = self._offsets(row)
            if found is not None:
                owned = dict.fromkeys(_owners(described.get(row.group)), GroupOffset(None))
                offsets[row.group] = {**owned, **found}
        # Read after the offsets, so that no offset is ahead of an older end.
        partitions = {partition for found in offsets.values() for partition in found}
        leaders = Leaders(self._cluster, partitions)
        bounds = read_bounds(leaders, partitions)
        at_ms = self._clock.now_ms()
        verdicts = {
            (group, partition): _judge(offset, bounds.get(partition), partition in leaders.gone)
            for group, found in offsets.items()
            for partition, offset in found.items()
        }
        lagging = {
            name: verdict.next_offset
            for name, verdict in verdicts.items()
            if verdict.lag and verdict.next_offset is not None
        }
        next_records = self._ages.find(leaders, lagging, bounds, at_ms)

        def partition_lag(group: str, partition: TopicPartition) -> PartitionLag:
            return _partition(
                partition,
                offsets[group][partition].offset,
                bounds.get(partition),
                verdicts[group, partition],
                next_records.get((group, partition)),
                at_ms,
            )

        return [
            _group(
                row,
                described.get(row.group),
                [partition_lag(row.group, partition) for partition in sorted(offsets[row.group])],
                at_ms,
            )
            for row in rows
            if row.group in offsets
        ]

    def is_silent(self, group: str) -> bool:
        """Whether an unlisted group may still exist, since its coordinator does not answer."""
        try:
            return bool(read_committed(self._cluster, group))
        except KafkaError as refusal:
            return refusal.code not in _GROUP_ERRORS
        except OSError:
            return True

    def _offsets(self, row: GroupRow) -> dict[TopicPartition, GroupOffset] | None:
        """The offsets of a group; None if it cannot be asked, mostly because it is gone by now."""
        try:
            if row.type == SHARE:
                return _share_offsets(self._cluster, row.group)
            committed = read_committed(self._cluster, row.group)
        except KafkaError as refusal:
            if refusal.code not in _GROUP_ERRORS:
                raise
            _log.debug("skipping group %s: %s", row.group, refusal.message)
            return None
        return {key: GroupOffset(offset) for key, offset in committed.items()}


def read_bounds(leaders: Leaders, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """The bounds of partitions; one that is gone or whose leader does not answer is left out."""
    keys = set(keys)
    starts = leaders.offsets(keys, EARLIEST)
    stables = leaders.offsets(keys, LATEST, Isolation.COMMITTED)
    ends = leaders.offsets(keys, LATEST)
    return {
        key: Bounds(starts[key], stables[key], ends[key])
        for key in keys
        if key in starts and key in stables and key in ends
    }


def _share_offsets(cluster: ClusterClient, group: str) -> dict[TopicPartition, GroupOffset]:
    """The start offsets of a share group: the oldest records not processed (KIP-932)."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        request,
        DescribeShareGroupOffsetsResponse,
        lambda answer: (answer.groups[0].error_code, answer.groups[0].error_message),
    )
    return {
        (topic.topic_name, found.partition_index): GroupOffset(
            None if found.start_offset < 0 else found.start_offset,
            None if found.lag < 0 else found.lag,
        )
        for topic in answer.groups[0].topics
        for found in topic.partitions
        if not found.error_code
    }


def _owners(described: Described | None) -> dict[TopicPartition, str]:
    members = described.members if described is not None else ()
    return {key: member.id for member in members for key in member.owned}


def _judge(offset: GroupOffset, bounds: Bounds | None, is_gone: bool) -> Verdict:
    if bounds is None and not is_gone:
        return Verdict(Standing.AWAY)
    verdict = judge(offset.offset, bounds)
    if offset.lag is not None and verdict.lag is not None:
        return verdict._replace(lag=offset.lag)
    return verdict


def _group(
    row: GroupRow, described: Described | None, partitions: Iterable[PartitionLag], at_ms: int
) -> GroupLag:
    owners = _owners(described)
    return GroupLag(
        group=row.group,
        type=row.type,
        protocol=row.protocol,
        state=row.state if described is None else described.state,
        assignor=None if described is None else described.assignor,
        at_ms=at_ms,
        members=None if described is None else described.members,
        partitions=tuple(replace(found, member=owners.get(found.key)) for found in partitions),
    )


def _partition(
    key: TopicPartition,
    committed: int | None,
    bounds: Bounds | None,
    verdict: Verdict,
    first: NextRecord | None,
    at_ms: int,
) -> PartitionLag:
    lag = verdict.lag
    end = None if bounds is None else bounds.end - verdict.held
    behind_ms = 0 if lag == 0 else None
    if first is not None and first.is_found:
        behind_ms = None if first.written_ms is None else max(0, at_ms - first.written_ms)
    elif first is not None and end is not None and first.offset >= end:
        # Only markers and aborted records are left: there is nothing to read.
        lag = behind_ms = 0
    return PartitionLag(
        topic=key[0],
        partition=key[1],
        standing=verdict.standing,
        committed=committed,
        start=None if bounds is None else bounds.start,
        end=end,
        lag=lag,
        behind_ms=behind_ms,
        lost=verdict.lost,
        held=verdict.held,
    )
