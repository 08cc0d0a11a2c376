"""The rebalances of a group: members rejoin, one leads, all get their assignment.

Every function works on one group and adds its effects to a `Result`. Only `classic.py` knows
requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinator.effects import (
    Cause,
    Now,
    Rebalance,
    Result,
    SetTimer,
    TimerKey,
    TimerKind,
)
from headrace.coordinator.group import Group
from headrace.coordinator.member import Member
from headrace.coordinator.records import GroupChange
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import Event, State
from headrace.protocol.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.errors import ErrorCode

UNKNOWN_MEMBER = ""
# When an emptied group cannot be stored (a full disk), it is tried again after this long.
EMPTY_RETRY_MS = 5_000


class Rebalances:
    """Moves groups through `states.TRANSITIONS`."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def touch(self, group: Group, member: Member, timeout_ms: int, now: Now, out: Result) -> None:
        """Extend a member's session to `timeout_ms` from now.

        A timer is set only if none fires before that: most heartbeats cost no timer.
        """
        member.deadline_ms = now.monotonic_ms + timeout_ms
        if member.alarm_ms is None or member.alarm_ms > member.deadline_ms:
            member.alarm_ms = member.deadline_ms
            out.timers.append(SetTimer(session_key(group, member.member_id), timeout_ms))

    def on_session_timer(self, group: Group, member_id: str, now: Now, out: Result) -> None:
        """Check whether a session has ended."""
        if member_id in group.pending:
            group.remove(member_id)
            self.complete_if_ready(group, now, out)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        member.alarm_ms = None
        # A member that waits for the response to a join or a sync need not send heartbeats. A new
        # member is different: only it can show that it is still there.
        waits = not member.is_new and (member_id in group.joins or member_id in group.syncs)
        left_ms = member.deadline_ms - now.monotonic_ms
        if waits:
            self.touch(group, member, member.session_timeout_ms, now, out)
        elif left_ms > 0:
            self.touch(group, member, left_ms, now, out)
        else:
            self.drop(group, member_id, out)
            reason = f"member {member_id} sent nothing within its session timeout"
            self.rebalance_or_complete(group, Cause.SESSION_TIMEOUT, reason, now, out)

    def drop(self, group: Group, member_id: str, out: Result) -> None:
        """Remove a member; a request of its that waits gets UNKNOWN_MEMBER_ID."""
        join = group.joins.get(member_id)
        if join is not None:
            out.reply(join, refused_join(ErrorCode.UNKNOWN_MEMBER_ID))
        sync = group.syncs.get(member_id)
        if sync is not None:
            out.reply(sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        out.timers.append(SetTimer(session_key(group, member_id), None))

    def rebalance_or_complete(
        self, group: Group, cause: Cause, reason: str, now: Now, out: Result
    ) -> None:
        """Start a rebalance after a change, or check whether the current join phase is over."""
        if group.state is State.PREPARING:
            self.complete_if_ready(group, now, out)
        else:
            self.prepare(group, cause, reason, now, out)

    def prepare(self, group: Group, cause: Cause, reason: str, now: Now, out: Result) -> None:
        """Start a rebalance: all members must rejoin."""
        for token in group.syncs.values():
            out.reply(token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        group.syncs.clear()
        group.unsynced.clear()
        out.timers.append(SetTimer(TimerKey(TimerKind.SYNC, group.group_id), None))
        out.rebalances.append(Rebalance(group.group_id, cause, reason))

        group.is_initial = group.state is State.EMPTY
        group.move(Event.REBALANCE)
        if group.is_initial:
            # The first member of an empty group is seldom the only one: give the others some time.
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.newcomer = False
            group.initial_delay_ms = delay_ms
            group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            out.timers.append(SetTimer(join_key(group), delay_ms))
        elif group.all_joined:
            self.complete(group, now, out)
        else:
            out.timers.append(SetTimer(join_key(group), group.rebalance_timeout_ms))

    def complete_if_ready(self, group: Group, now: Now, out: Result) -> None:
        """End the join phase if all have joined; that of an empty group ends only by its timer."""
        if group.state is State.PREPARING and not group.is_initial and group.all_joined:
            self.complete(group, now, out)

    def on_join_timer(self, group: Group, now: Now, out: Result) -> None:
        """End the join phase by its timer, unless an empty group still gets new members."""
        if group.state is not State.PREPARING:
            return
        if group.is_initial and group.newcomer and group.initial_left_ms > 0:
            group.newcomer = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, group.initial_left_ms)
            group.initial_left_ms = max(group.initial_left_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            out.timers.append(SetTimer(join_key(group), delay_ms))
        else:
            self.complete(group, now, out)

    def complete(self, group: Group, now: Now, out: Result) -> None:
        """End the join phase: dynamic members that have not rejoined are removed."""
        for member_id, member in list(group.members.items()):
            if member_id not in group.joins and member.instance_id is None:
                self.drop(group, member_id, out)
        if not group.members:
            out.records.append(GroupChange(group.group_id, group.emptied(now.wall_ms)))
            out.timers.append(SetTimer(join_key(group), EMPTY_RETRY_MS))
            return
        if not self._elect(group):
            # Only static members are left and none has rejoined: their sessions decide.
            out.timers.append(SetTimer(join_key(group), group.rebalance_timeout_ms))
            return
        out.timers.append(SetTimer(join_key(group), None))
        group.begin_generation()
        for member_id, member in group.members.items():
            token = group.joins.pop(member_id, None)
            if token is not None:
                out.reply(token, joined(group, member_id))
            self.touch(group, member, member.session_timeout_ms, now, out)
            member.is_new = False
        group.unsynced = set(group.members)
        out.timers.append(
            SetTimer(TimerKey(TimerKind.SYNC, group.group_id), group.rebalance_timeout_ms)
        )

    def _elect(self, group: Group) -> bool:
        """Make sure that the leader is a member that has joined."""
        if group.leader not in group.joins:
            here = next(
                (member_id for member_id in group.members if member_id in group.joins), None
            )
            if here is None:
                return False
            group.leader = here
        return True

    def synced(self, group: Group, member_id: str, out: Result) -> None:
        """Note that a member has asked for its assignment."""
        group.unsynced.discard(member_id)
        if not group.unsynced:
            out.timers.append(SetTimer(TimerKey(TimerKind.SYNC, group.group_id), None))

    def on_sync_timer(self, group: Group, now: Now, out: Result) -> None:
        """Remove members that joined but never asked for their assignment."""
        if group.state not in (State.COMPLETING, State.STABLE) or not group.unsynced:
            return
        late = sorted(group.unsynced)
        for member_id in late:
            self.drop(group, member_id, out)
        reason = f"members {', '.join(late)} did not ask for their assignments"
        self.prepare(group, Cause.SYNC_TIMEOUT, reason, now, out)


def session_key(group: Group, member_id: str) -> TimerKey:
    """The key of a member's session timer."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def join_key(group: Group) -> TimerKey:
    """The key of the timer that ends the join phase."""
    return TimerKey(TimerKind.JOIN, group.group_id)


def joined(group: Group, member_id: str) -> JoinGroupResponse:
    """The response to a member's join; the leader's lists the members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=roster(group.members.values(), group.protocol) if member_id == group.leader else [],
    )


def roster(members: Iterable[Member], protocol: str | None) -> list[JoinGroupResponseMember]:
    """The members with their metadata, for the leader's assignment."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.subscription(protocol),
        )
        for member in members
    ]


def refused_join(error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> JoinGroupResponse:
    """The response to a join that failed."""
    return JoinGroupResponse(error_code=error, member_id=member_id)
