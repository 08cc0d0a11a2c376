"""The port of a service's pure machine: commands in, entries by id, actions when they are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.client.admin.topics import NeededTopic
from headrace.client.message import Message
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# Later than any time that a command may name.
NEVER_MS = 1 << 62

Headers = Sequence[tuple[str, bytes | None]]


class Place(NamedTuple):
    """Where a command lies in the input topic; with its id it is the key of its state record."""

    partition: int
    offset: int


class Entry(NamedTuple):
    """What is known of one id: a state record, or the sum of several."""

    id: str
    # The machine's own word for the state of it.
    kind: str
    # Wall time of the next action; NEVER_MS for none.
    due_ms: int
    # When its command was appended to the input topic.
    at_ms: int
    # The command whose body this is.
    place: Place
    # The machine's own number; hides the method of a tuple, which nobody needs here.
    count: int = 0  # type: ignore[assignment]
    body: bytes = b""
    # Further state records of this id that end together with it.
    also: tuple[Place, ...] = ()


class Refusal(NamedTuple):
    """A command that is none; goes to the dead letters with the reason."""

    reason: str


class Folded(NamedTuple):
    """What is known of an id after one more record, and the records that count no more."""

    entry: Entry | None
    gone: tuple[Place, ...] = ()


class Outgoing(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    # How its topic is made where it is missing, whatever the broker does by itself.
    make: NeededTopic | None = None


class Action(NamedTuple):
    """What one transaction does for an entry: send records, and end it (None) or write it anew."""

    send: tuple[Outgoing, ...] = ()
    entry: Entry | None = None
    # Name and text; rung when the transaction is committed.
    alarm: NamedAlarm | None = None


class Transition(NamedTuple):
    """A row of a machine's transition table, for tests and pictures."""

    state: str
    event: str
    next: str
    effect: str


class Machine(Protocol):
    """What a service makes of its commands; pure, so it is told the time."""

    @property
    def name(self) -> str:
        """Names the service, its topics (`headrace.NAME`, ….state, ….dlq) and its groups."""
        ...

    @property
    def held_alarm(self) -> AlarmName:
        """The alarm for a state partition that an unfinished transaction keeps unread."""
        ...

    def read(self, message: Message, now_ms: int) -> Entry | Refusal:
        """The entry that a record of the input topic is."""
        ...

    def fold(self, known: Entry | None, new: Entry) -> Folded:
        """Put a record to what is known of its id; `known` comes without its body.

        The body of the result is that of its `place`. Records that are gone are deleted from the
        state topic no later than anything else is written about the id. When an earlier owner has
        written an entry anew, that comes with the place of what is known.
        """
        ...

    def act(self, entry: Entry, now_ms: int) -> Action:
        """What to do for an entry whose time has come."""
        ...

    def refused(self, entry: Entry, topic: str, reason: str, now_ms: int) -> Action:
        """What to do instead when a topic will never take what `act` sends."""
        ...
