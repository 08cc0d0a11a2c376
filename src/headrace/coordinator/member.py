"""One member of a group, and how members agree on a protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.coordinator.records import StoredMember

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
        # New until its first join is answered: it does not know its id and cannot send heartbeats.
        self.is_new = is_new
        # The session ends at `deadline_ms`; the timer that will look at it rings at `alarm_ms`.
        # A heartbeat moves the deadline only, so that it costs no timer.
        self.deadline_ms = 0
        self.alarm_ms: int | None = None

    def beat(self, monotonic_ms: int) -> None:
        """Let the session last; a new member's first one is longer and is not cut short."""
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
        """The member as the log keeps it, with another share if one is given."""
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
    # Most members of a group support the same.
    lists = {tuple([name for name, _ in member.protocols]) for member in members}
    return set.intersection(*map(set, lists)) if lists else set()


def chosen_protocol(members: Iterable[Member]) -> str | None:
    """The protocol with the most votes; each member votes for the first one that all support.

    Of two with the same votes, the one wins that an earlier member voted for.
    """
    members = list(members)
    common = common_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in common) for member in members if common
    )
    return max(votes, key=lambda name: votes[name], default=None)
