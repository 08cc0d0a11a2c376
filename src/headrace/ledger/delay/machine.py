"""The delay service's pure machine: schedule, reschedule and cancel by id, deliver when due."""

from __future__ import annotations

from enum import StrEnum

from headrace.client.dead_letters import ERROR_HEADER, SOURCE_HEADER, topic_of
from headrace.client.delayed import (
    CANCEL_HEADER,
    COMMAND_HEADERS,
    DELAY_TOPIC,
    TARGET_HEADER,
    read_due_ms,
    read_target,
)
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.machine import (
    Action,
    CommandPosition,
    Folded,
    InvalidCommand,
    LedgerEntry,
    OutgoingRecord,
)
from headrace.ledger.records import pack_message, read_id, unpack_message
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# A cancel may overtake its message on another partition, so it is remembered this long.
CANCEL_KEPT_MS = 86_400_000


class State(StrEnum):
    """The state of an id; nothing is kept of the last two."""

    UNKNOWN = "unknown"
    SCHEDULED = "scheduled"
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    DEAD = "dead letter"


class Event(StrEnum):
    """What happens to an id."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    OLDER_SCHEDULE = "schedule, but older"
    OLDER_CANCEL = "cancel, but older"
    DUE = "its time has come"
    REFUSED = "the target refuses it"
    EXPIRED = "a day has passed"


_S, _E = State, Event

# The next state, and what is done.
TABLE: dict[tuple[State, Event], tuple[State, str]] = {
    (_S.UNKNOWN, _E.SCHEDULE): (_S.SCHEDULED, "keep it"),
    (_S.UNKNOWN, _E.CANCEL): (_S.CANCELLED, "remember it for a day"),
    (_S.SCHEDULED, _E.SCHEDULE): (_S.SCHEDULED, "the new one takes its place"),
    (_S.SCHEDULED, _E.OLDER_SCHEDULE): (_S.SCHEDULED, "forget the older one"),
    (_S.SCHEDULED, _E.CANCEL): (_S.CANCELLED, "forget it, remember the cancel"),
    (_S.SCHEDULED, _E.OLDER_CANCEL): (_S.SCHEDULED, "forget the cancel"),
    (_S.SCHEDULED, _E.DUE): (_S.DELIVERED, "send it to its target"),
    (_S.SCHEDULED, _E.REFUSED): (_S.DEAD, "send it to headrace.delay.dlq"),
    (_S.CANCELLED, _E.SCHEDULE): (_S.SCHEDULED, "forget the cancel"),
    (_S.CANCELLED, _E.OLDER_SCHEDULE): (_S.CANCELLED, "forget the message"),
    (_S.CANCELLED, _E.CANCEL): (_S.CANCELLED, "the new one takes its place"),
    (_S.CANCELLED, _E.OLDER_CANCEL): (_S.CANCELLED, "forget the older one"),
    (_S.CANCELLED, _E.EXPIRED): (_S.UNKNOWN, "forget it"),
}


class DelayMachine:
    """Keeps one message of each id until it is due."""

    name = "delay"
    stuck_alarm: AlarmName = "delay-held"

    def read(self, message: Message, now_ms: int) -> LedgerEntry | InvalidCommand:
        """Read the headers of a record of `headrace.delay`: a schedule or a cancel."""
        try:
            return read_command(message, now_ms)
        except ValueError as error:
            return InvalidCommand(str(error))

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        """The newer command of an id counts, whichever of them is read first."""
        if known is None:
            return Folded(new)
        if new.position == known.position:
            return Folded(new._replace(other_positions=known.other_positions))
        event = event_of(known, new)
        if event in (Event.OLDER_SCHEDULE, Event.OLDER_CANCEL):
            return Folded(known, (new.position,))
        return Folded(new, (known.position,))

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        """Deliver a message, or forget a cancel."""
        if entry.state == State.CANCELLED:
            return Action()
        return Action((OutgoingRecord(*unpack_message(entry.body)),))

    def refused(self, entry: LedgerEntry, topic: str, reason: str, now_ms: int) -> Action:
        """Make the message a dead letter, with the reason."""
        _, key, value, headers = unpack_message(entry.body)
        source = f"{DELAY_TOPIC}/{entry.position.partition}/{entry.position.offset}"
        text = f"{topic} refuses it: {reason}"
        letter = [
            *headers,
            (TARGET_HEADER, topic.encode()),
            (ERROR_HEADER, text.encode()),
            (SOURCE_HEADER, source.encode()),
        ]
        alarm = NamedAlarm("delay-dead-letter", f"delayed message {entry.id}: {text}")
        return Action((OutgoingRecord(topic_of(DELAY_TOPIC), key, value, letter),), alarm=alarm)


def read_command(message: Message, now_ms: int) -> LedgerEntry:
    """The schedule or cancel that a record contains; ValueError if its headers are wrong."""
    given: dict[str, bytes | None] = {
        name: value
        for name, value in message.headers
        if name in COMMAND_HEADERS or name == ID_HEADER
    }
    position = CommandPosition(message.partition, message.offset)
    at_ms = message.timestamp_ms or now_ms
    if CANCEL_HEADER in given:
        # The command's own id comes first: an outbox gives every message it sends another one.
        id = given[CANCEL_HEADER] or given.get(ID_HEADER)
        if not id:
            raise ValueError(f"a cancel needs the id of its message, in {CANCEL_HEADER}")
        return LedgerEntry(read_id(id), State.CANCELLED, at_ms + CANCEL_KEPT_MS, at_ms, position)
    raw_id = given.get(ID_HEADER)
    # A message without an id is delivered as any other, but cannot be cancelled.
    own_id = message.id if raw_id is None else read_id(raw_id)
    target = read_target(given.get(TARGET_HEADER))
    due_ms = read_due_ms(given, at_ms)
    headers = [pair for pair in message.headers if pair[0] not in COMMAND_HEADERS]
    body = pack_message(target, message.key, message.value, headers)
    return LedgerEntry(own_id, State.SCHEDULED, due_ms, at_ms, position, body=body)


def event_of(known: LedgerEntry, new: LedgerEntry) -> Event:
    """What a further command means for an id that is known."""
    is_newer = _is_newer(new, known)
    if new.state == State.CANCELLED:
        return Event.CANCEL if is_newer else Event.OLDER_CANCEL
    return Event.SCHEDULE if is_newer else Event.OLDER_SCHEDULE


def _is_newer(new: LedgerEntry, known: LedgerEntry) -> bool:
    if new.position.partition == known.position.partition:
        return new.position.offset > known.position.offset
    if new.at_ms != known.at_ms:
        return new.at_ms > known.at_ms
    # In the same millisecond on two partitions, a cancel is newer than the message it cancels.
    if (new.state == State.CANCELLED) != (known.state == State.CANCELLED):
        return new.state == State.CANCELLED
    return new.position.partition > known.position.partition
