"""One member of a group, and what members agree on: a protocol and topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.coordinator.records import StoredMember
from headrace.protocol.codec import decoder
from headrace.protocol.logs.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.primitives import ProtocolError

CONSUMER_PROTOCOL_TYPE = "consumer"
VERSION_BYTES = 2

# Version 0 is a prefix of every later version, so later fields need not be known.
_decode_subscription = decoder(ConsumerProtocolSubscription, 0)

# A member's protocols in its order of preference: name and opaque metadata.
Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """One member of a group."""

    __slots__ = (
        "alarm_ms",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        # New until the response to its first join: it cannot send heartbeats without its id.
        self.is_new = is_new
        # The session ends at `deadline_ms`; its timer fires at `alarm_ms` and checks that. A
        # heartbeat moves only the deadline, so that it costs no timer.
        self.deadline_ms = 0
        self.alarm_ms: int | None = None

    def beat(self, monotonic_ms: int) -> None:
        """Extend the session; a new member's first one is longer and is not shortened."""
        deadline_ms = monotonic_ms + self.session_timeout_ms
        if deadline_ms > self.deadline_ms:
            self.deadline_ms = deadline_ms

    def subscription(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def stored(self, protocol: str | None, assignment: bytes | None = None) -> StoredMember:
        """The member as it is stored, with another assignment if one is given."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.subscription(protocol),
            self.assignment if assignment is None else assignment,
        )


def common_protocols(members: Iterable[Member]) -> set[str]:
    """The names that every member supports."""
    # Most members of a group support the same protocols.
    lists = {tuple([name for name, _ in member.protocols]) for member in members}
    return set.intersection(*map(set, lists)) if lists else set()


def chosen_protocol(members: Iterable[Member]) -> str | None:
    """The protocol with the most votes; each member votes for the first one that all support.

    Between equals, the vote of the earlier member wins.
    """
    members = list(members)
    common = common_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in common) for member in members if common
    )
    return max(votes, key=lambda name: votes[name], default=None)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any of the members subscribes to; None if one of them cannot be read."""
    topics: set[str] = set()
    for data in set(subscriptions):  # most members of a group have the same
        if len(data) < VERSION_BYTES:
            return None
        try:
            subscription, _ = _decode_subscription(data, VERSION_BYTES, len(data))
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
