"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A join or a sync that must wait is parked in the group under its token; the step that ends the wait
adds the reply to its own result. Stored state changes only when the result's records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.coordinator.effects import Call, Cause, Now, Result, SetTimer
from headrace.coordinator.group import Group
from headrace.coordinator.member import Member, Protocols, chosen_protocol
from headrace.coordinator.rebalances import (
    UNKNOWN_MEMBER,
    Rebalances,
    joined,
    refused_join,
    roster,
    session_key,
)
from headrace.coordinator.records import GroupChange
from headrace.coordinator.settings import NEW_MEMBER_TIMEOUT_MS, GroupSettings
from headrace.coordinator.states import HEARTBEAT_ANSWERS, State
from headrace.protocol.api.heartbeat import HeartbeatRequest
from headrace.protocol.api.join_group import JoinGroupRequest
from headrace.protocol.api.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.errors import ErrorCode

# KIP-394: from this version a new member first gets its id, and then joins with it.
MEMBER_ID_REQUIRED_VERSION = 4
# KIP-345: from this version several members may leave in one request.
LEAVE_BATCH_VERSION = 3
# KIP-814: from this version a returning static leader gets the members but assigns nothing.
SKIP_ASSIGNMENT_VERSION = 9
# Characters of a client id that go into a member id, so that it is not too long to send.
ID_NAME_MAX = 255


class ClassicGroups:
    """Requests of members to the groups of one coordinator."""

    def __init__(
        self,
        groups: dict[str, Group],
        rebalances: Rebalances,
        settings: GroupSettings,
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._settings = settings
        self._new_id = new_id

    def join(self, request: JoinGroupRequest, call: Call) -> Result:
        """Add a member, or let it rejoin; responds when the join phase is over."""
        out = Result()
        error = self._check_join(request)
        if error:
            return out.reply(call.token, refused_join(error, request.member_id))
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                refusal = refused_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                return out.reply(call.token, refusal)
            group = Group(request.group_id)
        if not self._has_room(group, request.member_id):
            self._rebalances.drop(group, request.member_id, out)
            self._rebalances.complete_if_ready(group, call.now, out)
            return out.reply(call.token, refused_join(ErrorCode.GROUP_MAX_SIZE_REACHED))
        protocols = protocols_of(request)
        if not group.supports(request.protocol_type, protocols):
            refusal = refused_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            return out.reply(call.token, refusal)
        if request.member_id == UNKNOWN_MEMBER:
            self._join_new(group, request, call, out)
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request, request.member_id, call, out)
        else:
            self._join_again(group, request, protocols, call, out)
        return out

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        settings = self._settings
        if not (
            settings.session_timeout_ms_min
            <= request.session_timeout_ms
            <= settings.session_timeout_ms_max
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _has_room(self, group: Group, member_id: str) -> bool:
        size_max = self._settings.group_size_max
        if group.state is State.PREPARING:
            # Only members that have joined again count: so a group above a limit that was lowered
            # shrinks to it.
            return member_id in group.joins or len(group.joins) < size_max
        return (
            group.state is State.EMPTY
            or member_id in group.members
            or len(group.members) < size_max
        )

    def _join_new(self, group: Group, request: JoinGroupRequest, call: Call, out: Result) -> None:
        instance_id = request.group_instance_id
        name = call.client_id if instance_id is None else instance_id
        member_id = f"{name[:ID_NAME_MAX]}-{self._new_id()}"
        if instance_id is not None:
            old_id = group.instances.get(instance_id)
            if old_id is not None:
                self._replace(group, old_id, member_id, request, call, out)
                return
        elif call.api_version >= MEMBER_ID_REQUIRED_VERSION:
            self._groups[group.group_id] = group
            group.pending.add(member_id)
            out.timers.append(SetTimer(session_key(group, member_id), request.session_timeout_ms))
            out.reply(call.token, refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(group, request, member_id, call, out)

    def _add(
        self, group: Group, request: JoinGroupRequest, member_id: str, call: Call, out: Result
    ) -> None:
        self._groups[group.group_id] = group
        if not group.members:
            group.protocol_type = request.protocol_type
        member = member_of(request, member_id, call)
        member.is_new = True
        group.add(member)
        group.newcomer = True
        group.joins[member_id] = call.token
        self._rebalances.touch(group, member, NEW_MEMBER_TIMEOUT_MS, call.now, out)
        reason = f"new member {member_id}{because(request.reason)}"
        self._rebalances.rebalance_or_complete(group, Cause.NEW_MEMBER, reason, call.now, out)

    def _join_again(
        self,
        group: Group,
        request: JoinGroupRequest,
        protocols: Protocols,
        call: Call,
        out: Result,
    ) -> None:
        member_id = request.member_id
        error = group.check(member_id, request.group_instance_id)
        if error:
            out.reply(call.token, refused_join(error, member_id))
            return
        member = group.members[member_id]
        unchanged = protocols == member.protocols
        if unchanged and (
            group.state is State.COMPLETING
            or (group.state is State.STABLE and member_id != group.leader)
        ):
            # It may have missed the response to its join: send it again. A stable group's leader
            # starts a rebalance instead, because only it sees changes of the topics.
            out.reply(call.token, joined(group, member_id))
            return
        replaced = group.joins.get(member_id)
        if replaced is not None:
            # The client abandoned its earlier request and sent a new one.
            out.reply(replaced, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        group.update(
            member,
            protocols=protocols,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
        )
        group.joins[member_id] = call.token
        reason = f"member {member_id} joins again{because(request.reason)}"
        self._rebalances.rebalance_or_complete(group, Cause.REJOINED, reason, call.now, out)

    def _replace(
        self,
        group: Group,
        old_id: str,
        new_id: str,
        request: JoinGroupRequest,
        call: Call,
        out: Result,
    ) -> None:
        """Let a static member return: it keeps its assignment under a new id (KIP-345)."""
        old = group.members[old_id]
        new = member_of(request, new_id, call)
        new.assignment = old.assignment
        self._rebalances.touch(group, new, new.session_timeout_ms, call.now, out)
        others = [new if member is old else member for member in group.members.values()]
        if group.state is State.STABLE and chosen_protocol(others) == group.protocol:
            # Nothing changes for other members. The new id counts once it is stored; until then
            # the old one does.
            leads = group.leader == old_id
            assignments = {member.member_id: member.assignment for member in others}
            generation = group.with_assignments(assignments, call.now.wall_ms, others)
            if leads:
                generation = generation._replace(leader=new_id)
            group.arriving[new_id] = new
            out.records.append(GroupChange(group.group_id, generation))
            response = joined(group, new_id)
            if call.api_version >= SKIP_ASSIGNMENT_VERSION and leads:
                response.leader = new_id
                response.skip_assignment = True
                response.members = roster(others, group.protocol)
            # Before KIP-814 the response names the old id as leader, so that a returning leader
            # does not assign what has not changed.
            out.reply(call.token, response)
            return
        join = group.joins.get(old_id)
        if join is not None:
            out.reply(join, refused_join(ErrorCode.FENCED_INSTANCE_ID, old_id))
        sync = group.syncs.get(old_id)
        if sync is not None:
            out.reply(sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        out.timers.append(SetTimer(session_key(group, old_id), None))
        group.swap(old_id, new)
        group.joins[new_id] = call.token
        reason = f"static member {request.group_instance_id} came back{because(request.reason)}"
        self._rebalances.rebalance_or_complete(
            group, Cause.STATIC_MEMBER_RETURNED, reason, call.now, out
        )

    def sync(self, request: SyncGroupRequest, call: Call) -> Result:
        """Return a member's assignment; the leader sends the assignments of all to be stored."""
        out = Result()
        group = self._groups.get(request.group_id)
        error = self._check_sync(group, request)
        if error or group is None:
            return out.reply(call.token, SyncGroupResponse(error_code=error))
        member_id = request.member_id
        self._rebalances.synced(group, member_id, out)
        if group.state is State.STABLE:
            member = group.members[member_id]
            return out.reply(call.token, assignment_response(group, member.assignment))
        replaced = group.syncs.get(member_id)
        if replaced is not None:
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            out.reply(replaced, refusal)
        group.syncs[member_id] = call.token
        if member_id == group.leader:
            self._store_assignments(group, request, call.now, out)
        return out

    def _store_assignments(
        self, group: Group, request: SyncGroupRequest, now: Now, out: Result
    ) -> None:
        assignments = {given.member_id: given.assignment for given in request.assignments}
        generation = group.with_assignments(assignments, now.wall_ms, group.members.values())
        out.records.append(GroupChange(group.group_id, generation))
        for stored in generation.members:
            token = group.syncs.pop(stored.member_id, None)
            if token is not None:
                out.reply(token, assignment_response(group, stored.assignment))
                member = group.members[stored.member_id]
                self._rebalances.touch(group, member, member.session_timeout_ms, now, out)

    def _check_sync(self, group: Group | None, request: SyncGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None or group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if differ(request.protocol_type, group.protocol_type) or differ(
            request.protocol_name, group.protocol
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is State.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> ErrorCode:
        """Extend a member's session; the response says whether it must rejoin."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        group.members[request.member_id].beat(now.monotonic_ms)
        return HEARTBEAT_ANSWERS[group.state]

    def leave(self, request: LeaveGroupRequest, call: Call) -> Result:
        """Remove members; the others rebalance."""
        out = Result()
        batched = call.api_version >= LEAVE_BATCH_VERSION
        if not request.group_id:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
            return out.reply(call.token, response)
        identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
        group = self._groups.get(request.group_id)
        size = 0 if group is None else len(group.members)
        results = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID
                if group is None
                else self._leave_one(group, identity, out),
            )
            for identity in identities
        ]
        if group is not None and len(group.members) < size and group.state is not State.PREPARING:
            names = ", ".join(i.member_id or i.group_instance_id or "" for i in identities)
            reason = f"{names} left{because(identities[0].reason)}"
            self._rebalances.prepare(group, Cause.LEFT, reason, call.now, out)
        elif group is not None:
            self._rebalances.complete_if_ready(group, call.now, out)
        if batched:
            return out.reply(call.token, LeaveGroupResponse(members=results))
        return out.reply(call.token, LeaveGroupResponse(error_code=results[0].error_code))

    def _leave_one(self, group: Group, identity: MemberIdentity, out: Result) -> ErrorCode:
        member_id = identity.member_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member without knowing its current id.
            found = group.instances.get(identity.group_instance_id or "")
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in group.pending:
            error = group.check(member_id, identity.group_instance_id)
            if error:
                return error
        self._rebalances.drop(group, member_id, out)
        return ErrorCode.NONE


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a join, in the member's order of preference."""
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The rebalance timeout; version 0 has one timeout for both."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def member_of(request: JoinGroupRequest, member_id: str, call: Call) -> Member:
    """The member that a join describes."""
    return Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
    )


def assignment_response(group: Group, assignment: bytes) -> SyncGroupResponse:
    """The response with a member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def differ(asked: str | None, actual: str | None) -> bool:
    """Whether both are given and differ."""
    return asked is not None and actual is not None and asked != actual


def because(reason: str | None) -> str:
    """The client's reason (KIP-800), for the log."""
    return f" ({reason})" if reason else ""
