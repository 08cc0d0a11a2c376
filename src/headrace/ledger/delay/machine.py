"""The delay service's pure machine: schedule, reschedule and cancel by id, deliver when due."""

from __future__ import annotations

from enum import StrEnum

from headrace.client.dead_letters import ERROR_HEADER, SOURCE_HEADER, topic_of
from headrace.client.delayed import TOPIC
from headrace.client.message import Message
from headrace.ledger.delay.headers import read_command
from headrace.ledger.machine import (
    Action,
    Entry,
    Folded,
    Outgoing,
    Refusal,
    Transition,
)
from headrace.ledger.packing import unpack_message
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# A cancel may overtake what it cancels on another partition; so long it is waited for.
CANCEL_KEPT_MS = 86_400_000


class State(StrEnum):
    """What is known of an id; the last two are ends, of which nothing is kept."""

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


TABLE: tuple[Transition, ...] = (
    Transition(State.UNKNOWN, Event.SCHEDULE, State.SCHEDULED, "keep it"),
    Transition(State.UNKNOWN, Event.CANCEL, State.CANCELLED, "remember it for a day"),
    Transition(State.SCHEDULED, Event.SCHEDULE, State.SCHEDULED, "the new one takes its place"),
    Transition(State.SCHEDULED, Event.OLDER_SCHEDULE, State.SCHEDULED, "forget the older one"),
    Transition(State.SCHEDULED, Event.CANCEL, State.CANCELLED, "forget it, remember the cancel"),
    Transition(State.SCHEDULED, Event.OLDER_CANCEL, State.SCHEDULED, "forget the cancel"),
    Transition(State.SCHEDULED, Event.DUE, State.DELIVERED, "send it to its target"),
    Transition(State.SCHEDULED, Event.REFUSED, State.DEAD, "send it to headrace.delay.dlq"),
    Transition(State.CANCELLED, Event.SCHEDULE, State.SCHEDULED, "forget the cancel"),
    Transition(State.CANCELLED, Event.OLDER_SCHEDULE, State.CANCELLED, "forget the message"),
    Transition(State.CANCELLED, Event.CANCEL, State.CANCELLED, "the new one takes its place"),
    Transition(State.CANCELLED, Event.OLDER_CANCEL, State.CANCELLED, "forget the older one"),
    Transition(State.CANCELLED, Event.EXPIRED, State.UNKNOWN, "forget it"),
)
NEXT = {(row.state, row.event): State(row.next) for row in TABLE}


class DelayMachine:
    """Keeps one message of each id until it is due."""

    name = "delay"
    held_alarm: AlarmName = "delay-held"

    def read(self, message: Message, now_ms: int) -> Entry | Refusal:
        """A schedule or a cancel by the headers of a record of `headrace.delay`."""
        try:
            command = read_command(message, now_ms)
        except ValueError as error:
            return Refusal(str(error))
        if command.is_cancel:
            due_ms = command.at_ms + CANCEL_KEPT_MS
            return Entry(command.id, State.CANCELLED, due_ms, command.at_ms, command.place)
        return Entry(
            command.id,
            State.SCHEDULED,
            command.due_ms,
            command.at_ms,
            command.place,
            body=command.body,
        )

    def fold(self, known: Entry | None, new: Entry) -> Folded:
        """The newer command of an id counts, whichever of them comes first."""
        if known is None:
            return Folded(new)
        if new.place == known.place:
            return Folded(new._replace(also=known.also))
        event = event_of(known, new)
        if event in (Event.OLDER_SCHEDULE, Event.OLDER_CANCEL):
            return Folded(known, (new.place,))
        return Folded(new, (known.place,))

    def act(self, entry: Entry, now_ms: int) -> Action:
        """Deliver a message, or forget a cancel."""
        if entry.kind == State.CANCELLED:
            return Action()
        return Action((Outgoing(*unpack_message(entry.body)),))

    def refused(self, entry: Entry, topic: str, reason: str, now_ms: int) -> Action:
        """Make it a dead letter, with the reason."""
        _, key, value, headers = unpack_message(entry.body)
        source = f"{TOPIC}/{entry.place.partition}/{entry.place.offset}"
        text = f"{topic} does not take it: {reason}"
        letter = [
            *headers,
            ("headrace-target", topic.encode()),
            (ERROR_HEADER, text.encode()),
            (SOURCE_HEADER, source.encode()),
        ]
        alarm = NamedAlarm("delay-dead-letter", f"the delayed message {entry.id}: {text}")
        return Action((Outgoing(topic_of(TOPIC), key, value, letter),), alarm=alarm)


def event_of(known: Entry, new: Entry) -> Event:
    """What a further command means for an id that is known."""
    is_newer = _is_newer(new, known)
    if new.kind == State.CANCELLED:
        return Event.CANCEL if is_newer else Event.OLDER_CANCEL
    return Event.SCHEDULE if is_newer else Event.OLDER_SCHEDULE


def _is_newer(new: Entry, known: Entry) -> bool:
    if new.place.partition == known.place.partition:
        return new.place.offset > known.place.offset
    if new.at_ms != known.at_ms:
        return new.at_ms > known.at_ms
    # In the same millisecond on two partitions: who cancels has seen what is cancelled.
    if (new.kind == State.CANCELLED) != (known.kind == State.CANCELLED):
        return new.kind == State.CANCELLED
    return new.place.partition > known.place.partition
