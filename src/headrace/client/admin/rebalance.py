"""Rebalancing a classic group from outside, without taking a partition from a member by force.

A visitor asks to join, which makes every member hand over its partitions and join again; the
visitor leaves before they have. A second visitor, which only has a member id (KIP-394), keeps the
join phase open until then: so no member ever sees either visitor, and there is one rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.client.admin.errors import AdminError
from headrace.client.admin.groups import CLASSIC, EMPTY_STATES, GroupRow
from headrace.client.wire.cluster import BrokerAddress, ClusterClient, CoordinatorOf
from headrace.client.wire.connection import BrokerConnection
from headrace.client.wire.errors import refused
from headrace.protocol.api.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.api.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headrace.protocol.errors import ErrorCode

PREPARING = "PreparingRebalance"
STABLE = "Stable"
REASON = "headrace group rebalance"
POLL_SECONDS = 0.05
# Ends the visitors should this process die before they leave; brokers require 6 s or more.
SESSION_TIMEOUT_MS = 10_000
# How long the coordinator may take to start the join phase.
ENTER_SECONDS_MAX = 10.0
# From this version on a new member gets its id before it joins (KIP-394).
ID_FIRST_VERSION = 4


class Rebalance:
    """A rebalance of a classic group that has members, asked for from outside."""

    def __init__(self, cluster: ClusterClient, row: GroupRow) -> None:
        self._cluster = cluster
        self._group = row.group
        if row.type not in (None, CLASSIC):
            raise AdminError(
                f"group {row.group!r} is of type {row.type}, which its broker rebalances by itself",
                "only classic groups can be asked to rebalance",
            )
        self._coordinator: BrokerAddress = cluster.coordinator(CoordinatorOf.GROUP, row.group)
        group = self._describe()
        if group.group_state in EMPTY_STATES:
            raise AdminError(
                f"group {row.group!r} has no members", "start one: it gets all partitions"
            )
        self._protocol_type, self._protocol = group.protocol_type, group.protocol_data
        self._is_under_way = group.group_state != STABLE

    def start(self) -> bool:
        """Make the members join again; False if a rebalance is under way already."""
        if self._is_under_way:
            return False
        with self._connect() as holder, self._connect() as visitor:
            if holder.version(self._joining()) < ID_FIRST_VERSION:
                raise AdminError(
                    "the broker is too old to be asked for a rebalance",
                    "restart one member of the group instead",
                )
            held = self._take_id(holder)
            entering = self._joining(self._take_id(visitor))
            visitor.send(entering)
            try:
                self._wait(lambda group: group.group_state == PREPARING, ENTER_SECONDS_MAX)
            finally:
                # In this order: the join phase cannot end before the holder leaves.
                self._leave([MemberIdentity(member_id=entering.member_id, reason=REASON)])
                self._leave([MemberIdentity(member_id=held, reason=REASON)])
        return True

    def remove(self, names: list[str]) -> None:
        """Remove members by member id or instance id (KIP-345); the others get their partitions."""
        members = self._describe().members
        identities = []
        for name in names:
            if any(member.group_instance_id == name for member in members):
                identities.append(MemberIdentity(group_instance_id=name, reason=REASON))
            elif any(member.member_id == name for member in members):
                identities.append(MemberIdentity(member_id=name, reason=REASON))
            else:
                raise AdminError(
                    f"group {self._group!r} has no member {name!r}",
                    f"headrace group describe {self._group} lists member and instance ids",
                )
        self._leave(identities)

    def wait(self, seconds_max: float) -> int:
        """Wait until every partition has an owner again; returns the number of members."""
        done = self._wait(lambda group: group.group_state in (STABLE, *EMPTY_STATES), seconds_max)
        return len(done.members)

    def _leave(self, identities: list[MemberIdentity]) -> None:
        answer = self._cluster.ask_coordinator(
            CoordinatorOf.GROUP,
            self._group,
            LeaveGroupRequest(group_id=self._group, members=identities),
            LeaveGroupResponse,
            lambda answer: (answer.error_code, None),
        )
        for left in answer.members:
            # A member that has left meanwhile is gone, too.
            if left.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
                raise refused(left.error_code)

    def _take_id(self, wire: BrokerConnection) -> str:
        answer = wire.ask(self._joining(), JoinGroupResponse)
        if answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            raise AdminError(
                f"group {self._group!r} is full (group.max.size), so no visitor can join",
                "restart one member of the group instead",
            )
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise refused(answer.error_code)
        return answer.member_id

    def _joining(self, member_id: str = "") -> JoinGroupRequest:
        # Every member supports the chosen protocol. The visitor's metadata is never read, since it
        # has left when the leader assigns partitions.
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self._protocol, metadata=b"")],
            reason=REASON,
        )

    def _connect(self) -> BrokerConnection:
        return self._cluster.connect(self._coordinator.host, self._coordinator.port)

    def _describe(self) -> DescribedGroup:
        answer = self._cluster.ask_coordinator(
            CoordinatorOf.GROUP,
            self._group,
            DescribeGroupsRequest(groups=[self._group]),
            DescribeGroupsResponse,
            lambda answer: (answer.groups[0].error_code, answer.groups[0].error_message),
        )
        return answer.groups[0]

    def _wait(
        self, is_done: Callable[[DescribedGroup], bool], seconds_max: float
    ) -> DescribedGroup:
        deadline = time.monotonic() + seconds_max
        while True:
            group = self._describe()
            if is_done(group):
                return group
            if time.monotonic() > deadline:
                raise AdminError(
                    f"group {self._group!r} is still {group.group_state} after {seconds_max:g} s",
                    f"headrace group describe {self._group} shows its members",
                )
            time.sleep(POLL_SECONDS)
