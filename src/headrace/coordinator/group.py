"""One classic group: its members, its rebalance in memory, and its stored generation."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinator.effects import Token
from headrace.coordinator.member import (
    CONSUMER_PROTOCOL_TYPE,
    Member,
    Protocols,
    chosen_protocol,
    common_protocols,
    subscribed_topics,
)
from headrace.coordinator.records import NO_TIMESTAMP, Generation, StoredMember
from headrace.coordinator.states import TRANSITIONS, Event, State, moved
from headrace.protocol.errors import ErrorCode


class Group:
    """A group in memory; only `install` applies what is stored."""

    __slots__ = (
        "_common",
        "arriving",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_left_ms",
        "instances",
        "is_initial",
        "joins",
        "leader",
        "members",
        "newcomer",
        "pending",
        "protocol",
        "protocol_type",
        "state",
        "stored",
        "subscribed",
        "syncs",
        "unsynced",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        # None for a group that only ever stored offsets ("simple").
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        # Member ids given out (KIP-394) that have not joined yet.
        self.pending: set[str] = set()
        # Tokens that wait for the end of the join phase, and for an assignment.
        self.joins: dict[str, Token] = {}
        self.syncs: dict[str, Token] = {}
        # Members that have not asked for their assignment in this generation yet.
        self.unsynced: set[str] = set()
        # Static members under their new ids, until the record that names them is replayed.
        self.arriving: dict[str, Member] = {}
        # The first rebalance of an empty group waits for more members.
        self.is_initial = False
        self.newcomer = False
        self.initial_delay_ms = 0
        self.initial_left_ms = 0
        # Topics that the members subscribe to; None if unknown.
        self.subscribed: frozenset[str] | None = None
        # The stored generation; None if nothing is stored.
        self.stored: Generation | None = None
        self._common: set[str] | None = None

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        names = {name for name, _ in member.protocols}
        if len(self.members) == 1:
            self._common = names
        elif self._common is not None:
            self._common &= names

    def remove(self, member_id: str) -> None:
        """Remove a member; its waiting requests must have been answered before."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self.joins.pop(member_id, None)
        self.syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._common = None
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def swap(self, old_id: str, member: Member) -> None:
        """Replace a static member's old id by its new one."""
        self.members = {
            member.member_id if member_id == old_id else member_id: (
                member if member_id == old_id else other
            )
            for member_id, other in self.members.items()
        }
        assert member.instance_id is not None
        self.instances[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member.member_id)
        self.joins.pop(old_id, None)
        self.syncs.pop(old_id, None)
        self._common = None

    def update(
        self,
        member: Member,
        *,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member from its new join."""
        if protocols != member.protocols:
            self._common = None
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request comes from a member, and from the current one of its instance id."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined."""
        return len(self.joins) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: the longest timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_consumer(self) -> bool:
        """Whether the members' metadata are consumer subscriptions."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be in the group."""
        if not self.members and self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        if not self.members:
            return protocol_type == self.protocol_type and bool(protocols)
        if self._common is None:
            self._common = common_protocols(self.members.values())
        return protocol_type == self.protocol_type and any(
            name in self._common for name, _ in protocols
        )

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member may consume the topic; true if unknown."""
        return self.is_consumer if self.subscribed is None else topic in self.subscribed

    def move(self, event: Event) -> None:
        """Follow the table of transitions."""
        self.state = moved(self.state, event)

    def begin_generation(self) -> None:
        """End the join phase: the next generation waits for its assignments."""
        self.move(Event.JOINED)
        self.generation += 1
        self.protocol = chosen_protocol(self.members.values())
        self.subscribed = self._subscriptions()
        self.is_initial = False

    def with_assignments(
        self, assignments: dict[str, bytes], state_timestamp_ms: int, members: Iterable[Member]
    ) -> Generation:
        """The current generation with these assignments, to be stored."""
        return Generation(
            generation=self.generation,
            protocol_type=self.protocol_type or "",
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=state_timestamp_ms,
            members=tuple(
                member.stored(self.protocol, assignments.get(member.member_id, b""))
                for member in members
            ),
        )

    def emptied(self, state_timestamp_ms: int) -> Generation:
        """The next generation without members, to be stored."""
        return Generation(
            self.generation + 1, self.protocol_type or "", None, None, state_timestamp_ms, ()
        )

    def install(self, generation: Generation) -> None:
        """Apply a generation that is in the log.

        While the group is live the record is its own, and completes a step that waits for it.
        Otherwise the log is loading, and the group becomes what the record says.
        """
        self.stored = generation
        event = Event.ASSIGNED if generation.members else Event.EMPTIED
        next_generation = self.generation + (event is Event.EMPTIED)
        if (self.state, event) in TRANSITIONS and generation.generation == next_generation:
            self.move(event)
        else:
            self.state = State.STABLE if generation.members else State.EMPTY
            self.joins.clear()
            self.syncs.clear()
            self.pending.clear()
            self.unsynced.clear()
        self.members = {
            stored.member_id: self._member_for(stored, generation.protocol)
            for stored in generation.members
        }
        self.instances = {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        self.arriving.clear()
        self.unsynced &= self.members.keys()
        self.generation = generation.generation
        self.protocol_type = generation.protocol_type or None
        self.protocol = generation.protocol
        self.leader = generation.leader
        self.subscribed = self._subscriptions()
        self.is_initial = False
        self._common = None

    def _member_for(self, stored: StoredMember, protocol: str | None) -> Member:
        """The live member that a record describes, or one with what the log knows.

        The log knows only the chosen one of a member's protocols.
        """
        live = self.members.get(stored.member_id) or self.arriving.get(stored.member_id)
        if live is not None:
            live.assignment = stored.assignment
            if live.stored(protocol) == stored:
                return live
        return Member(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout_ms,
            protocols=((protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )

    @property
    def empty_since_ms(self) -> int | None:
        """When the last member left; None if unknown."""
        if self.stored is None or self.stored.state_timestamp_ms == NO_TIMESTAMP:
            return None
        return self.stored.state_timestamp_ms

    def _subscriptions(self) -> frozenset[str] | None:
        if not self.is_consumer:
            return None
        return subscribed_topics(
            member.subscription(self.protocol) for member in self.members.values()
        )
