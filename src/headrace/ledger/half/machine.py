"""The half service's pure machine: holds, checks, delivers or drops half messages.

The checks and the outcome of a message are written over the state record of its prepare. A
decision stays in the state topic until the transaction that carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.admin.topics import commands_topic
from headrace.client.dead_letters import ERROR_HEADER, SOURCE_HEADER, topic_of
from headrace.client.delayed import DELAY_TOPIC, TARGET_HEADER
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.half.commands import (
    CHECK_HEADER,
    GROUP_HEADER,
    HALF_TOPIC,
    PREPARED_HEADER,
    Prepared,
    check_topic,
    read_command,
)
from headrace.ledger.half.states import TABLE, Effect, Event, State
from headrace.ledger.machine import (
    Action,
    CommandPosition,
    Folded,
    InvalidCommand,
    LedgerEntry,
    OutgoingRecord,
)
from headrace.ledger.records import pack, unpack
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# Marks the state of an entry that was contradicted and whose alarm has not rung yet.
CONTRADICTED = "!"

DAY_MS = 86_400_000

_EARLY_DECISIONS = {State.EARLY_COMMIT: Event.COMMIT, State.EARLY_ROLLBACK: Event.ROLLBACK}
_OPEN = (State.WAITING, State.PARKED)
_DECIDED = (State.COMMITTING, State.ROLLING_BACK)
_ENDED = (State.COMMITTED, State.ROLLED_BACK)
_FOR_COMMIT = (State.EARLY_COMMIT, State.COMMITTING, State.COMMITTED)
_FOR_ROLLBACK = (State.EARLY_ROLLBACK, State.ROLLING_BACK, State.ROLLED_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLimits:
    """When a sender is asked, how often, and how long decisions are remembered; as in RocketMQ."""

    first_check_ms: int = 6_000
    check_every_ms: int = 30_000
    checks_max: int = 15
    # For repeated decisions, contradictions, and a prepare that arrives late.
    remember_ms: int = DAY_MS
    # How often a parked message rings its alarm again, until a person decides.
    remind_ms: int = DAY_MS


class Decided(NamedTuple):
    """What is remembered of a message that was decided."""

    target: str
    group: str
    # Why its target refused it and it became a dead letter; empty if it did not.
    refusal: str = ""

    def pack(self) -> bytes:
        """The body of its entry."""
        return pack([field.encode() for field in self])

    @classmethod
    def unpack(cls, body: bytes) -> Decided:
        """The fields that `pack` made this body of."""
        return cls(*((field or b"").decode() for field in unpack(body)))


def state_of(entry: LedgerEntry) -> State:
    """The state of an id."""
    return State(entry.state.removesuffix(CONTRADICTED))


class HalfMachine:
    """Holds prepared messages until they are decided; asks for decisions that do not come."""

    name = "half"
    stuck_alarm: AlarmName = "half-held"

    def __init__(self, limits: HalfLimits | None = None) -> None:
        self.limits = limits or HalfLimits()

    def read(self, message: Message, now_ms: int) -> LedgerEntry | InvalidCommand:
        """Read a record of `headrace.half`; the time to the first check counts from now."""
        try:
            command = read_command(message)
        except ValueError as problem:
            return InvalidCommand(str(problem))
        position = CommandPosition(message.partition, message.offset)
        state, _ = TABLE[State.UNKNOWN, command.event]
        if command.prepared is None:
            due_ms = now_ms + self.limits.remember_ms
            return LedgerEntry(command.id, state, due_ms, message.timestamp_ms, position)
        after_ms = command.check_after_ms
        due_ms = now_ms + (self.limits.first_check_ms if after_ms is None else after_ms)
        body = command.prepared.pack()
        return LedgerEntry(command.id, state, due_ms, message.timestamp_ms, position, body=body)

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        """Merge a state record into the entry of its id, in the order of the log."""
        if known is None:
            return Folded(new)
        if new.position == known.position:
            return Folded(_rewritten(known, new))
        others = (known.position, *known.other_positions)
        if state_of(new) in _ENDED:
            # The service wrote it before it had read the other commands.
            is_opposite = _is_contradicted(known) or _oppose(state_of(known), state_of(new))
            if is_opposite or _is_contradicted(new):
                return Folded(_contradicted(new, (*new.other_positions, *others)))
            return Folded(new, others)
        event = _EARLY_DECISIONS.get(state_of(new), Event.PREPARE)
        state, effect = TABLE[state_of(known), event]
        if effect is Effect.CONTRADICT:
            return Folded(_contradicted(known, (*known.other_positions, new.position)))
        if effect is Effect.DECIDE:
            return Folded(_decided(known, new, state))
        if event is Event.PREPARE and new.count > known.count and state_of(known) not in _ENDED:
            # The service has checked this one already, so it came first and the other repeats it.
            first = new._replace(
                state=known.state, due_ms=known.due_ms, other_positions=known.other_positions
            )
            return Folded(first, (known.position,))
        return Folded(known, (new.position,))

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        """Check, park, deliver, drop or forget, as the table says."""
        before = state_of(entry)
        alarm = None
        if _is_contradicted(entry):
            later = Event.ROLLBACK if before in _FOR_COMMIT else Event.COMMIT
            text = f"half message {entry.id} is {before}; a later {later} is ignored"
            alarm = NamedAlarm("half-contradiction", text)
            if before not in _DECIDED:
                due_ms = entry.at_ms + self.limits.remember_ms
                reported = entry._replace(state=before, due_ms=due_ms, other_positions=())
                return Action(entry=reported, alarm=alarm)
        is_exhausted = before is State.WAITING and entry.count >= self.limits.checks_max
        state, effect = TABLE[before, Event.EXHAUSTED if is_exhausted else Event.DUE]
        match effect:
            case Effect.ASK:
                due_ms = now_ms + self.limits.check_every_ms
                asked = entry._replace(state=state, due_ms=due_ms, count=entry.count + 1)
                return Action((_check(asked),), asked)
            case Effect.PARK | Effect.REMIND:
                parked = entry._replace(state=state, due_ms=now_ms + self.limits.remind_ms)
                text = (
                    f"half message {entry.id} is undecided after {entry.count} checks; decide with "
                    f"headrace half resolve {entry.id}"
                )
                return Action((), parked, NamedAlarm("half-parked", text))
            case Effect.DELIVER:
                ended = self._decide(entry, state, now_ms)
                return Action((_delivery(entry),), ended, alarm)
            case Effect.DROP:
                return Action((), self._decide(entry, state, now_ms), alarm)
            case Effect.MISS:
                text = f"half message {entry.id} was committed but never prepared"
                return Action((), None, NamedAlarm("half-unprepared", text))
            case _:
                return Action((), None)

    def refused(self, entry: LedgerEntry, topic: str, reason: str, now_ms: int) -> Action:
        """Skip a check that cannot be sent; make an undeliverable message a dead letter."""
        action = self.act(entry, now_ms)
        if not any(sent.topic == topic for sent in action.send):
            # It was decided since then, and sends nothing to that topic any more.
            return action
        if state_of(entry) is State.WAITING:
            text = f"{topic} refuses the check of half message {entry.id}: {reason}"
            return Action((), action.entry, NamedAlarm("half-check-refused", text))
        (sent,) = action.send
        target = Prepared.unpack(entry.body).target
        source = f"{HALF_TOPIC}/{entry.position.partition}/{entry.position.offset}"
        headers = [
            *(header for header in sent.headers if header[0] != TARGET_HEADER),
            (TARGET_HEADER, target.encode()),
            (ERROR_HEADER, f"{topic} refuses it: {reason}".encode()),
            (SOURCE_HEADER, source.encode()),
        ]
        letter = OutgoingRecord(topic_of(HALF_TOPIC), sent.key, sent.value, headers)
        text = f"half message {entry.id} is committed, but {topic} refuses it: {reason}"
        ended = self._decide(entry, State.COMMITTED, now_ms, reason)
        return Action((letter,), ended, NamedAlarm("half-undeliverable", text))

    def _decide(
        self, entry: LedgerEntry, state: State, now_ms: int, refusal: str = ""
    ) -> LedgerEntry:
        prepared = Prepared.unpack(entry.body)
        return entry._replace(
            state=state,
            due_ms=now_ms + self.limits.remember_ms,
            at_ms=now_ms,
            body=Decided(prepared.target, prepared.group, refusal).pack(),
            other_positions=(),
        )


def _is_contradicted(entry: LedgerEntry) -> bool:
    return entry.state.endswith(CONTRADICTED)


def _oppose(one: State, other: State) -> bool:
    return (one in _FOR_COMMIT and other in _FOR_ROLLBACK) or (
        one in _FOR_ROLLBACK and other in _FOR_COMMIT
    )


def _contradicted(entry: LedgerEntry, other_positions: tuple[CommandPosition, ...]) -> LedgerEntry:
    return entry._replace(
        state=state_of(entry) + CONTRADICTED, due_ms=0, other_positions=other_positions
    )


def _decided(known: LedgerEntry, new: LedgerEntry, state: State) -> LedgerEntry:
    """The entry of a message whose prepare and decision are both known, in either order."""
    prepare, decision = (new, known) if known.state.startswith("early") else (known, new)
    mark = CONTRADICTED if _is_contradicted(decision) else ""
    return prepare._replace(
        state=state + mark,
        due_ms=0,
        other_positions=(*prepare.other_positions, decision.position, *decision.other_positions),
    )


def _rewritten(known: LedgerEntry, new: LedgerEntry) -> LedgerEntry:
    """An owner has rewritten the entry; commands that it had not read then still count."""
    if state_of(new) in _OPEN and state_of(known) in _DECIDED:
        return known._replace(count=new.count, body=new.body)
    if known.other_positions and _is_contradicted(known):
        return _contradicted(new, known.other_positions)
    return new._replace(other_positions=known.other_positions)


def _delivery(entry: LedgerEntry) -> OutgoingRecord:
    """The message for its target, or for the delay service."""
    prepared = Prepared.unpack(entry.body)
    headers = [*prepared.headers, (ID_HEADER, entry.id.encode())]
    if prepared.delay is None:
        return OutgoingRecord(prepared.target, prepared.key, prepared.value, headers)
    name, when = prepared.delay
    headers += [(TARGET_HEADER, prepared.target.encode()), (name, when.encode())]
    # The topic of the delay service may not exist yet.
    return OutgoingRecord(
        DELAY_TOPIC, prepared.key, prepared.value, headers, commands_topic(DELAY_TOPIC)
    )


def _check(entry: LedgerEntry) -> OutgoingRecord:
    """The message for a checker of its producer group."""
    prepared = Prepared.unpack(entry.body)
    headers = [
        *prepared.headers,
        (ID_HEADER, entry.id.encode()),
        (TARGET_HEADER, prepared.target.encode()),
        (GROUP_HEADER, prepared.group.encode()),
        (CHECK_HEADER, str(entry.count).encode()),
        (PREPARED_HEADER, str(entry.at_ms).encode()),
    ]
    topic = check_topic(prepared.group)
    return OutgoingRecord(topic.name, prepared.key, prepared.value, headers, topic)
