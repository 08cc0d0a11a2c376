"""Making a group share out its partitions anew, without taking any from a member by force.

A visitor asks to join, which makes every member hand over in good order and join again, and goes
before they have. A second visitor, who has only an id yet (KIP-394), keeps the round open until
then: so no member ever sees either of them, and there is one rebalance, not two.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.cli.common.errors import CliError
from headrace.client.admin.groups import CLASSIC, EMPTY_STATES, GroupRow
from headrace.client.wire.cluster import BrokerAddress, Cluster, CoordinatorOf
from headrace.client.wire.connection import Wire
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
# The visitors' own, should this process die between coming and going: brokers ask for 6 s or more.
SESSION_TIMEOUT_MS = 10_000
# How long the coordinator may take to let a visitor in.
ENTER_SECONDS_MAX = 10.0
# From this version on a newcomer gets its id before it is let in (KIP-394).
ID_FIRST_VERSION = 4


class Rebalance:
    """A rebalance of a classic group that has members, asked for from outside."""

    def __init__(self, cluster: Cluster, row: GroupRow) -> None:
        self._cluster = cluster
        self._group = row.group
        if row.type not in (None, CLASSIC):
            raise CliError(
                f"group {row.group!r} is of type {row.type}: its broker shares out by itself",
                "only classic groups rebalance as a whole",
            )
        self._coordinator: BrokerAddress = cluster.coordinator(CoordinatorOf.GROUP, row.group)
        group = self._describe()
        if group.group_state in EMPTY_STATES:
            raise CliError(
                f"group {row.group!r} has no members", "there is nobody to share out among"
            )
        self._protocol_type, self._protocol = group.protocol_type, group.protocol_data
        self._is_under_way = group.group_state != STABLE

    def start(self) -> bool:
        """Make the members join again; False if they are at it already."""
        if self._is_under_way:
            return False
        with self._connect() as holder, self._connect() as visitor:
            if holder.version(self._joining()) < ID_FIRST_VERSION:
                raise CliError("the broker is too old to be asked for a rebalance")
            held = self._take_id(holder)
            entering = self._joining(self._take_id(visitor))
            visitor.send(entering)
            try:
                self._wait(lambda group: group.group_state == PREPARING, ENTER_SECONDS_MAX)
            finally:
                # In this order: as long as the holder is there, the round cannot end.
                self._leave([MemberIdentity(member_id=entering.member_id, reason=REASON)])
                self._leave([MemberIdentity(member_id=held, reason=REASON)])
        return True

    def remove(self, names: list[str]) -> None:
        """Take members out, by member id or instance id (KIP-345); those who stay share out."""
        members = self._describe().members
        identities = []
        for name in names:
            if any(member.group_instance_id == name for member in members):
                identities.append(MemberIdentity(group_instance_id=name, reason=REASON))
            elif any(member.member_id == name for member in members):
                identities.append(MemberIdentity(member_id=name, reason=REASON))
            else:
                raise CliError(
                    f"group {self._group!r} has no member {name!r}",
                    f"headrace group describe {self._group} lists member and instance ids",
                )
        self._leave(identities)

    def wait(self, seconds_max: float) -> int:
        """Wait until every partition has an owner again; how many members there are."""
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
            # Somebody who has gone meanwhile is gone, too.
            if left.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
                raise refused(left.error_code)

    def _take_id(self, wire: Wire) -> str:
        answer = wire.ask(self._joining(), JoinGroupResponse)
        if answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            raise CliError(
                f"group {self._group!r} is full, so nobody can ask it to rebalance",
                "restart one of its members",
            )
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise refused(answer.error_code)
        return answer.member_id

    def _joining(self, member_id: str = "") -> JoinGroupRequest:
        # The protocol that was chosen is one that every member knows. What the visitor says in it
        # is never read, since it is gone when the leader shares out.
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self._protocol, metadata=b"")],
            reason=REASON,
        )

    def _connect(self) -> Wire:
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

    def _wait(self, is_so: Callable[[DescribedGroup], bool], seconds_max: float) -> DescribedGroup:
        deadline = time.monotonic() + seconds_max
        while True:
            group = self._describe()
            if is_so(group):
                return group
            if time.monotonic() > deadline:
                raise CliError(
                    f"group {self._group!r} is still {group.group_state} after {seconds_max:g} s",
                    f"headrace group describe {self._group} shows its members",
                )
            time.sleep(POLL_SECONDS)
