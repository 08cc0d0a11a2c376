"""What becomes of half messages: pure, obeys the table in `states.py`, driven by the ledger.

The place of the prepare is the place of its id: checks and the outcome are written over it. A
decision stays in the state topic until the transaction that carries it out.
"""

from __future__ import annotations

from headrace.client.admin.topics import commands_topic
from headrace.client.dead_letters import ERROR_HEADER, SOURCE_HEADER, topic_of
from headrace.client.delayed import TARGET_HEADER
from headrace.client.delayed import TOPIC as DELAY_TOPIC
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.half.bodies import Ended, Prepared
from headrace.ledger.half.headers import (
    CHECK_HEADER,
    GROUP_HEADER,
    PREPARED_HEADER,
    TOPIC,
    check_topic,
    read_said,
)
from headrace.ledger.half.limits import HalfLimits
from headrace.ledger.half.states import MOVES, Effect, Event, State
from headrace.ledger.machine import (
    Action,
    Entry,
    Folded,
    Outgoing,
    Place,
    Refusal,
)
from headrace.telemetry.alarms import AlarmName, NamedAlarm

# After a state: somebody has said the opposite, and nobody has been told yet.
CONTRADICTED = "!"

_SAID = {State.EARLY_COMMIT: Event.COMMIT, State.EARLY_ROLLBACK: Event.ROLLBACK}
_OPEN = (State.WAITING, State.PARKED)
_DECIDED = (State.COMMITTING, State.ROLLING_BACK)
_ENDED = (State.COMMITTED, State.ROLLED_BACK)
_FOR_COMMIT = (State.EARLY_COMMIT, State.COMMITTING, State.COMMITTED)
_FOR_ROLLBACK = (State.EARLY_ROLLBACK, State.ROLLING_BACK, State.ROLLED_BACK)


def state_of(entry: Entry) -> State:
    """The state of an id."""
    return State(entry.kind.removesuffix(CONTRADICTED))


class HalfMachine:
    """Holds prepared messages until they are decided; asks for decisions that do not come."""

    name = "half"
    held_alarm: AlarmName = "half-held"

    def __init__(self, limits: HalfLimits | None = None) -> None:
        self.limits = limits or HalfLimits()

    def read(self, message: Message, now_ms: int) -> Entry | Refusal:
        """A record of `headrace.half`; the first check is counted from now, by this clock."""
        try:
            said = read_said(message)
        except ValueError as problem:
            return Refusal(str(problem))
        place = Place(message.partition, message.offset)
        state, _ = MOVES[State.UNKNOWN, said.event]
        if said.prepared is None:
            due_ms = now_ms + self.limits.remember_ms
            return Entry(said.id, state, due_ms, message.timestamp_ms, place)
        after_ms = said.check_after_ms
        due_ms = now_ms + (self.limits.first_check_ms if after_ms is None else after_ms)
        return Entry(said.id, state, due_ms, message.timestamp_ms, place, body=said.prepared.pack())

    def fold(self, known: Entry | None, new: Entry) -> Folded:
        """A state record meets what is known of its id; the order of the records is the log's."""
        if known is None:
            return Folded(new)
        if new.place == known.place:
            return Folded(_rewritten(known, new))
        others = (known.place, *known.also)
        if state_of(new) in _ENDED:
            # Written by the service after these had come, but before it had read them.
            is_opposite = _is_contradicted(known) or _oppose(state_of(known), state_of(new))
            if is_opposite or _is_contradicted(new):
                return Folded(_contradicted(new, (*new.also, *others)))
            return Folded(new, others)
        event = _SAID.get(state_of(new), Event.PREPARE)
        state, effect = MOVES[state_of(known), event]
        if effect is Effect.CONTRADICT:
            return Folded(_contradicted(known, (*known.also, new.place)))
        if effect is Effect.DECIDE:
            return Folded(_decided(known, new, state))
        if event is Event.PREPARE and new.count > known.count and state_of(known) not in _ENDED:
            # The service had asked about this one already: it is the first, the other a repeat.
            first = new._replace(kind=known.kind, due_ms=known.due_ms, also=known.also)
            return Folded(first, (known.place,))
        return Folded(known, (new.place,))

    def act(self, entry: Entry, now_ms: int) -> Action:
        """The time of an id has come."""
        before = state_of(entry)
        alarm = None
        if _is_contradicted(entry):
            said = Event.ROLLBACK if before in _FOR_COMMIT else Event.COMMIT
            text = f"{entry.id} is {before}; a later {said} changes nothing"
            alarm = NamedAlarm("half-contradiction", text)
            if before not in _DECIDED:
                due_ms = entry.at_ms + self.limits.remember_ms
                told = entry._replace(kind=before, due_ms=due_ms, also=())
                return Action(entry=told, alarm=alarm)
        is_exhausted = before is State.WAITING and entry.count >= self.limits.checks_max
        state, effect = MOVES[before, Event.EXHAUSTED if is_exhausted else Event.DUE]
        match effect:
            case Effect.ASK:
                due_ms = now_ms + self.limits.check_every_ms
                asked = entry._replace(kind=state, due_ms=due_ms, count=entry.count + 1)
                return Action((_question(asked),), asked)
            case Effect.PARK | Effect.REMIND:
                parked = entry._replace(kind=state, due_ms=now_ms + self.limits.remind_ms)
                text = f"{entry.id} is undecided after {entry.count} checks; a person must decide"
                return Action((), parked, NamedAlarm("half-parked", text))
            case Effect.DELIVER:
                ended = self._ended(entry, state, now_ms)
                return Action((_delivery(entry),), ended, alarm)
            case Effect.DROP:
                return Action((), self._ended(entry, state, now_ms), alarm)
            case Effect.MISS:
                text = f"{entry.id} was committed, but nobody has prepared it"
                return Action((), None, NamedAlarm("half-unprepared", text))
            case _:
                return Action((), None)

    def refused(self, entry: Entry, topic: str, reason: str, now_ms: int) -> Action:
        """A topic will never take what `act` would send there."""
        action = self.act(entry, now_ms)
        if not any(sent.topic == topic for sent in action.send):
            # It was decided since, and has nothing to do with that topic any more.
            return action
        if state_of(entry) is State.WAITING:
            text = f"{topic} cannot be asked about {entry.id}: {reason}"
            return Action((), action.entry, NamedAlarm("half-check-refused", text))
        (sent,) = action.send
        target = Prepared.unpack(entry.body).target
        headers = [
            *(header for header in sent.headers if header[0] != TARGET_HEADER),
            (TARGET_HEADER, target.encode()),
            (ERROR_HEADER, f"{topic} does not take it: {reason}".encode()),
            (SOURCE_HEADER, f"{TOPIC}/{entry.place.partition}/{entry.place.offset}".encode()),
        ]
        letter = Outgoing(topic_of(TOPIC), sent.key, sent.value, headers)
        text = f"{entry.id} is committed, but {topic} does not take it: {reason}"
        ended = self._ended(entry, State.COMMITTED, now_ms, reason)
        return Action((letter,), ended, NamedAlarm("half-undeliverable", text))

    def _ended(self, entry: Entry, state: State, now_ms: int, refusal: str = "") -> Entry:
        prepared = Prepared.unpack(entry.body)
        return entry._replace(
            kind=state,
            due_ms=now_ms + self.limits.remember_ms,
            at_ms=now_ms,
            body=Ended(prepared.target, prepared.group, refusal).pack(),
            also=(),
        )


def _is_contradicted(entry: Entry) -> bool:
    return entry.kind.endswith(CONTRADICTED)


def _oppose(one: State, other: State) -> bool:
    return (one in _FOR_COMMIT and other in _FOR_ROLLBACK) or (
        one in _FOR_ROLLBACK and other in _FOR_COMMIT
    )


def _contradicted(entry: Entry, also: tuple[Place, ...]) -> Entry:
    return entry._replace(kind=state_of(entry) + CONTRADICTED, due_ms=0, also=also)


def _decided(known: Entry, new: Entry, state: State) -> Entry:
    """Prepare and decision have met, whichever came first."""
    prepare, decision = (new, known) if known.kind.startswith("early") else (known, new)
    mark = CONTRADICTED if _is_contradicted(decision) else ""
    return prepare._replace(
        kind=state + mark, due_ms=0, also=(*prepare.also, decision.place, *decision.also)
    )


def _rewritten(known: Entry, new: Entry) -> Entry:
    """The service's own record comes back: what it had not read when it wrote still holds."""
    if state_of(new) in _OPEN and state_of(known) in _DECIDED:
        return known._replace(count=new.count, body=new.body)
    if known.also and _is_contradicted(known):
        return _contradicted(new, known.also)
    return new._replace(also=known.also)


def _delivery(entry: Entry) -> Outgoing:
    """The message as its readers get it, or as the delay service does."""
    prepared = Prepared.unpack(entry.body)
    headers = [*prepared.headers, (ID_HEADER, entry.id.encode())]
    if prepared.delay is None:
        return Outgoing(prepared.target, prepared.key, prepared.value, headers)
    name, when = prepared.delay
    headers += [(TARGET_HEADER, prepared.target.encode()), (name, when.encode())]
    # Nobody may have needed that topic before.
    return Outgoing(DELAY_TOPIC, prepared.key, prepared.value, headers, commands_topic(DELAY_TOPIC))


def _question(entry: Entry) -> Outgoing:
    """The message as a checker of its producer group gets it."""
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
    return Outgoing(topic.name, prepared.key, prepared.value, headers, topic)
