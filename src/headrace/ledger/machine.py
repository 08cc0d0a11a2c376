"""The port between the ledger and a service: commands in, an entry per id, actions when due.

The delay and the half service each implement `LedgerMachine`; the ledger does everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.client.admin.topics import NeededTopic
from headrace.client.message import Message
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# Later than any time that a command can name.
NEVER_MS = 1 << 62

Headers = Sequence[tuple[str, bytes | None]]


class CommandPosition(NamedTuple):
    """The partition and offset of a command in the input topic; part of its state record's key."""

    partition: int
    offset: int


class LedgerEntry(NamedTuple):
    """The state of one id: one state record, or several merged into one."""

    id: str
    # Defined by the machine.
    state: str
    # Wall time of the next action; NEVER_MS if there is none.
    due_ms: int
    # When its command was appended to the input topic.
    at_ms: int
    # The command that the body belongs to.
    position: CommandPosition
    # Defined by the machine. It hides a method of tuple that nobody needs here.
    count: int = 0  # type: ignore[assignment]
    body: bytes = b""
    # Commands of the same id whose state records are deleted together with this one.
    other_positions: tuple[CommandPosition, ...] = ()


class InvalidCommand(NamedTuple):
    """A record that is not a command; it becomes a dead letter with this reason."""

    reason: str


class Folded(NamedTuple):
    """The entry of an id after one more record, and the records that it replaces."""

    entry: LedgerEntry | None
    superseded: tuple[CommandPosition, ...] = ()


class OutgoingRecord(NamedTuple):
    """A record to send."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    # How to create the topic if it is missing; None leaves that to the broker.
    needed_topic: NeededTopic | None = None


class Action(NamedTuple):
    """What one transaction does for an entry: send records, then delete it (None) or rewrite it."""

    send: tuple[OutgoingRecord, ...] = ()
    entry: LedgerEntry | None = None
    # Rung once the transaction is committed.
    alarm: NamedAlarm | None = None


class LedgerMachine(Protocol):
    """What a service does with its commands; pure, so the time is an argument."""

    @property
    def name(self) -> str:
        """Names the service, its topics (`headrace.NAME`, ….state, ….dlq) and its groups."""
        ...

    @property
    def stuck_alarm(self) -> AlarmName:
        """The alarm for a state partition that a hanging transaction keeps from being read."""
        ...

    def read(self, message: Message, now_ms: int) -> LedgerEntry | InvalidCommand:
        """Turn a record of the input topic into an entry."""
        ...

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        """Merge a state record into the entry of its id; `known` comes without its body.

        The body of the result is that of its `position`. Superseded records are deleted from the
        state topic no later than anything else is written about the id. A `new` with the position
        of `known` is an entry that an earlier owner has rewritten.
        """
        ...

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        """What to do for an entry that is due."""
        ...

    def refused(self, entry: LedgerEntry, topic: str, reason: str, now_ms: int) -> Action:
        """What to do instead when a topic permanently refuses what `act` sends."""
        ...
