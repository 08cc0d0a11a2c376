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
from headrace.lag.ages import Ages, Subject
from headrace.lag.first_records import First
from headrace.lag.members import SHARE, Described, describe
from headrace.lag.places import (
    Bounds,
    GroupLag,
    PartitionLag,
    Standing,
    Verdict,
    judge,
)
from headrace.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

# A group that these are said of is left out, and the others are measured.
_OF_ONE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED)

_log = logging.getLogger("headrace.lag")


class Place(NamedTuple):
    """Where a group is in a partition; a share group's broker counts its lag by itself."""

    offset: int | None
    lag: int | None = None


class Meter:
    """Measures again and again; what it has seen makes later looks cheaper.

    OSError and KafkaError say that the cluster could not be asked; the next look may work.
    """

    def __init__(self, cluster: ClusterClient, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._ages = Ages()

    def look(self, is_wanted: Callable[[GroupRow], bool] = lambda _row: True) -> list[GroupLag]:
        """Measure the groups that are wanted, by name."""
        rows = [
            row
            for row in list_groups(self._cluster)
            if is_wanted(row) and not row.group.startswith(MARKERS)
        ]
        described = describe(self._cluster, rows)
        places: dict[Subject, Place] = {}
        subjects: dict[str, list[Subject]] = {}
        for row in rows:
            found = self._places(row)
            if found is not None:
                owned = dict.fromkeys(_owners(described.get(row.group)), Place(None))
                named = {(row.group, key): at for key, at in {**owned, **found}.items()}
                places.update(named)
                subjects[row.group] = sorted(named)
        # After the places, so that no place is ahead of an end that was seen before it.
        leaders = Leaders(self._cluster, {key for _, key in places})
        bounds = read_bounds(leaders, {key for _, key in places})
        at_ms = self._clock.now_ms()
        verdicts = {
            (group, key): _judge(place, bounds.get(key), key in leaders.gone)
            for (group, key), place in places.items()
        }
        lagging = {
            name: verdict.place
            for name, verdict in verdicts.items()
            if verdict.lag and verdict.place is not None
        }
        firsts = self._ages.find(leaders, lagging, bounds, at_ms)
        return [
            _group(
                row,
                described.get(row.group),
                [
                    _partition(
                        name[1],
                        places[name].offset,
                        bounds.get(name[1]),
                        verdicts[name],
                        firsts.get(name),
                        at_ms,
                    )
                    for name in subjects[row.group]
                ],
                at_ms,
            )
            for row in rows
            if row.group in subjects
        ]

    def is_silent(self, group: str) -> bool:
        """Whether nobody can say if a group that is not listed is gone: its coordinator is away."""
        try:
            return bool(read_committed(self._cluster, group))
        except KafkaError as refusal:
            return refusal.code not in _OF_ONE_GROUP
        except OSError:
            return True

    def _places(self, row: GroupRow) -> dict[TopicPartition, Place] | None:
        """Where a group is; None if it cannot be asked, most often because it is gone by now."""
        try:
            if row.type == SHARE:
                return _share_places(self._cluster, row.group)
            committed = read_committed(self._cluster, row.group)
        except KafkaError as refusal:
            if refusal.code not in _OF_ONE_GROUP:
                raise
            _log.debug("group %s is not measured: %s", row.group, refusal.message)
            return None
        return {key: Place(offset) for key, offset in committed.items()}


def read_bounds(leaders: Leaders, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """What partitions hold; one that is gone, or whose leader is away, is left out."""
    keys = set(keys)
    starts = leaders.offsets(keys, EARLIEST)
    stables = leaders.offsets(keys, LATEST, Isolation.COMMITTED)
    ends = leaders.offsets(keys, LATEST)
    return {
        key: Bounds(starts[key], stables[key], ends[key])
        for key in keys
        if key in starts and key in stables and key in ends
    }


def _share_places(cluster: ClusterClient, group: str) -> dict[TopicPartition, Place]:
    """Where a share group begins in its partitions: the oldest record not done (KIP-932)."""
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
        (topic.topic_name, found.partition_index): Place(
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


def _judge(place: Place, bounds: Bounds | None, is_gone: bool) -> Verdict:
    if bounds is None and not is_gone:
        return Verdict(Standing.AWAY)
    verdict = judge(place.offset, bounds)
    if place.lag is not None and verdict.lag is not None:
        return verdict._replace(lag=place.lag)
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
    first: First | None,
    at_ms: int,
) -> PartitionLag:
    lag = verdict.lag
    end = None if bounds is None else bounds.end - verdict.held
    behind_ms = 0 if lag == 0 else None
    if first is not None and first.is_found:
        behind_ms = None if first.written_ms is None else max(0, at_ms - first.written_ms)
    elif first is not None and end is not None and first.offset >= end:
        # Markers and aborted records are all that is left: there is nothing to read.
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
