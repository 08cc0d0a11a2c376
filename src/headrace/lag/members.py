"""The members of groups of every kind, as their coordinators describe them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from headrace.client.admin.groups import CLASSIC, GroupRow
from headrace.client.wire.cluster import BrokerAddress, ClusterClient
from headrace.lag.group_lag import MemberView
from headrace.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.api.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.api.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from headrace.protocol.codec import decoder
from headrace.protocol.logs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.primitives import ProtocolError

# The protocol type of classic groups of consumers; other kinds exist, such as Connect.
CONSUMER_PROTOCOL = "consumer"
CONSUMER = "consumer"
SHARE = "share"
GROUPS_PER_REQUEST = 200
# Version 0 is a prefix of every later version, so later fields need not be known.
_VERSION_BYTES = 2
_SUBSCRIPTION = decoder(ConsumerProtocolSubscription, 0)
_ASSIGNMENT = decoder(ConsumerProtocolAssignment, 0)


class Described(NamedTuple):
    """A group as its coordinator describes it."""

    state: str
    assignor: str | None
    members: tuple[MemberView, ...]


def describe(cluster: ClusterClient, rows: Iterable[GroupRow]) -> dict[str, Described]:
    """Groups with their members; an unknown group or kind of group is left out."""
    found: dict[str, Described] = {}

    def kind(row: GroupRow) -> tuple[BrokerAddress, str]:
        return row.coordinator, row.type or CLASSIC

    for (coordinator, type_), same in groupby(sorted(rows, key=kind), key=kind):
        names = [row.group for row in same]
        for at in range(0, len(names), GROUPS_PER_REQUEST):
            found.update(_ask(cluster, coordinator, type_, names[at : at + GROUPS_PER_REQUEST]))
    return found


def _ask(
    cluster: ClusterClient, coordinator: BrokerAddress, type_: str, names: list[str]
) -> Iterator[tuple[str, Described]]:
    # A group that has moved since it was listed is described by the next measurement.
    if type_ == CLASSIC:
        answer = cluster.ask_broker(
            coordinator, DescribeGroupsRequest(groups=names), DescribeGroupsResponse
        )
        for group in answer.groups:
            if not group.error_code:
                is_consumer = group.protocol_type == CONSUMER_PROTOCOL
                members = tuple(_classic(member, is_consumer) for member in group.members)
                yield group.group_id, _described(group.group_state, group.protocol_data, members)
    elif type_ == CONSUMER:
        modern = cluster.ask_broker(
            coordinator,
            ConsumerGroupDescribeRequest(group_ids=names),
            ConsumerGroupDescribeResponse,
        )
        yield from _modern(modern.groups)
    elif type_ == SHARE:
        shared = cluster.ask_broker(
            coordinator, ShareGroupDescribeRequest(group_ids=names), ShareGroupDescribeResponse
        )
        yield from _modern(shared.groups)


def _modern(groups: Iterable[Any]) -> Iterator[tuple[str, Described]]:
    for group in groups:
        if not group.error_code:
            members = tuple(
                MemberView(
                    id=member.member_id,
                    client=member.client_id,
                    host=member.client_host.removeprefix("/"),
                    instance=getattr(member, "instance_id", None),
                    topics=frozenset(member.subscribed_topic_names),
                    owned=frozenset(
                        (topic.topic_name, number)
                        for topic in member.assignment.topic_partitions
                        for number in topic.partitions
                    ),
                )
                for member in group.members
            )
            yield group.group_id, _described(group.group_state, group.assignor_name, members)


def _described(state: str, assignor: str, members: Iterable[MemberView]) -> Described:
    by_name = sorted(members, key=lambda member: (member.instance or "", member.id))
    return Described(state, assignor or None, tuple(by_name))


def _classic(member: DescribedGroupMember, is_consumer: bool) -> MemberView:
    return MemberView(
        id=member.member_id,
        client=member.client_id,
        # Kafka puts a slash before an address without a name.
        host=member.client_host.removeprefix("/"),
        instance=member.group_instance_id,
        topics=_subscribed(member.member_metadata) if is_consumer else frozenset(),
        owned=_owned(member.member_assignment) if is_consumer else frozenset(),
    )


def _subscribed(metadata: bytes) -> frozenset[str]:
    return frozenset(topic for read in _embedded(_SUBSCRIPTION, metadata) for topic in read.topics)


def _owned(assignment: bytes) -> frozenset[TopicPartition]:
    return frozenset(
        (row.topic, number)
        for read in _embedded(_ASSIGNMENT, assignment)
        for row in read.assigned_partitions
        for number in row.partitions
    )


def _embedded(decode: Any, data: bytes) -> Iterator[Any]:
    """The data that a client put into its own field; nothing if it is missing or malformed."""
    if len(data) >= _VERSION_BYTES:
        with suppress(ProtocolError):
            yield decode(data, _VERSION_BYTES, len(data))[0]
