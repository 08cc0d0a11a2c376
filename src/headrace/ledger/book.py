"""The book of one state partition: what is known of each id, and what is to be done now.

Pure but for its cache: records and the time come in, plans of transactions come out. The near
future is on a timing wheel, all else in the cache, and what is due waits in order until a
transaction that does it is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from headrace.ledger.cache import Cache, Held
from headrace.ledger.machine import Action, Entry, Machine, Outgoing, Place
from headrace.ledger.records import read_key, read_value, state_key, state_value
from headrace.ledger.shelf import Shelf
from headrace.telemetry.alarms import NamedAlarm
from headrace.timing.wheel import TimingWheel

TICK_MS = 1
WHEEL_SIZE = 256
# The near future: so far ahead, and no more than so many.
NEAR_MS = 10_000
NEAR_MAX = 20_000
# Records that count no more are deleted with the next action, or by themselves after this.
GONE_MS = 1_000
GONE_MAX = 5_000
# A transaction takes no more than this, and reads it in pieces of so many entries.
BYTES_MAX = 8_000_000
CHUNK = 250

_log = logging.getLogger("headrace.ledger")

# What may be sent to a topic: None for all, a reason for nothing ever; Wait for not now.
Verdict = Callable[[Outgoing], str | None]


class Wait(Exception):
    """A topic takes nothing now, or nobody can say yet whether it does."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@dataclass(slots=True)
class Plan:
    """One transaction: what it sends, and what it writes to the state partition."""

    items: list[tuple[Held, Action]] = field(default_factory=list)
    gone: list[tuple[str, Place]] = field(default_factory=list)
    # Those of the items that are refused, so that no target is at fault if they fail.
    letters: set[int] = field(default_factory=set)

    @property
    def sends(self) -> Iterable[Outgoing]:
        """The records to be sent, in order."""
        return (outgoing for _, action in self.items for outgoing in action.send)

    def writes(self, writer: int) -> Iterable[tuple[bytes, bytes | None]]:
        """Keys and values for the state partition; None deletes."""
        for id, place in self.gone:
            yield state_key(id, place), None
        for (_, entry), action in self.items:
            for place in entry.also:
                yield state_key(entry.id, place), None
            after = action.entry
            value = None if after is None else state_value(after, writer)
            yield state_key(entry.id, entry.place), value

    @property
    def deleted(self) -> Iterable[bytes]:
        """The keys that it deletes."""
        for id, place in self.gone:
            yield state_key(id, place)
        for (_, entry), action in self.items:
            for place in entry.also:
                yield state_key(entry.id, place)
            if action.entry is None:
                yield state_key(entry.id, entry.place)

    def __bool__(self) -> bool:
        return bool(self.items or self.gone)


class Book:
    """The entries of one state partition; used by one thread.

    `writer` marks what this book's owner writes itself: it has been entered already when it comes
    back with the records of the partition.
    """

    def __init__(self, machine: Machine, cache: Cache, writer: int, now_ms: int) -> None:
        self.writer = writer
        self._machine = machine
        self._shelf = Shelf(cache)
        # Deletions that this owner has written, and that will come back.
        self._echoes: set[bytes] = set()
        self._gone: dict[tuple[str, Place], None] = {}
        self._gone_since_ms: int | None = None
        # Numbers whose time has come, and lists of them that are tried apart from the others, in
        # turn with these.
        self._due: deque[int] = deque()
        self._apart: deque[list[int]] = deque()
        self._is_apart_next = True
        # Those whose topic takes nothing now.
        self._waiting: dict[str, list[int]] = {}
        # What a topic said that refused an entry for good.
        self._refused: dict[int, tuple[str, str]] = {}
        self._reset(now_ms)

    @property
    def pending(self) -> int:
        """How many entries there are."""
        return self._shelf.count

    def take(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Enter records of the state partition, in their order."""
        parsed = []
        echoes = self._echoes
        for key, value in records:
            if value is None and key in echoes:
                echoes.discard(key)
                continue
            try:
                id, place = read_key(key)
            except ValueError:
                _log.warning("a record of the state topic has a key that is none: %.100r", key)
            else:
                parsed.append((id, place, value))
        known = self._shelf.find({id for id, _, _ in parsed})
        now: dict[str, Entry | None] = {id: held.entry for id, held in known.items()}
        rewritten: set[str] = set()
        for id, place, value in parsed:
            entry = now.get(id)
            if value is None:
                now[id] = self._without(entry, id, place)
                continue
            try:
                new, writer = read_value(id, place, value)
            except ValueError as error:
                _log.warning("a state record is passed over: %s", error)
                continue
            if writer == self.writer:
                continue
            try:
                folded, gone = self._machine.fold(entry, new)
            except Exception:
                # A newer version's, maybe; one odd record must not hold all that come after it.
                _log.exception("a state record of %s is passed over", id)
                continue
            if entry is not None and folded is not None and entry.place == folded.place == place:
                # An owner has written it anew: the newest body counts.
                folded = folded._replace(body=new.body)
                rewritten.add(id)
            now[id] = folded
            for other in gone:
                self._gone[id, other] = None
        self._store(known, now, rewritten)

    def plan(self, now_ms: int, most: int, verdict: Verdict = lambda _: None) -> Plan:
        """What to do now, `most` entries at once; it is as if not planned until it is `done`."""
        self._advance(now_ms)
        plan = Plan()
        if len(self._gone) > GONE_MAX:
            plan.gone = list(islice(self._gone, GONE_MAX))
            return plan
        if self._apart and (self._is_apart_next or not self._due):
            self._is_apart_next = False
            self._add(plan, self._apart.popleft(), now_ms, verdict)
        else:
            self._is_apart_next = True
            size = 0
            while self._due and len(plan.items) < most and size < BYTES_MAX:
                count = min(CHUNK, most - len(plan.items), len(self._due))
                seqs = [self._due.popleft() for _ in range(count)]
                size += self._add(plan, seqs, now_ms, verdict)
        if self._gone and (plan.items or self._is_late(now_ms)):
            # All of them: an entry must not outlive the one that took its place.
            plan.gone = list(self._gone)
        return plan

    def done(self, plan: Plan) -> list[NamedAlarm]:
        """The plan is committed; returns the alarms to ring."""
        for gone in plan.gone:
            self._gone.pop(gone, None)
        if not self._gone:
            self._gone_since_ms = None
        self._echoes.update(plan.deleted)
        self._remove([held.seq for held, _ in plan.items])
        again = [
            action.entry._replace(also=()) for _, action in plan.items if action.entry is not None
        ]
        self._put(again)
        return [action.alarm for _, action in plan.items if action.alarm is not None]

    def put_back(self, plan: Plan) -> None:
        """The plan came to nothing, by nobody's fault: it is due as before."""
        self._due.extendleft(held.seq for held, _ in reversed(plan.items))

    def suspect(self, plan: Plan, suspects: Mapping[int, str]) -> None:
        """The plan came to nothing by some of these items, for a reason; the others are due.

        One that is suspected alone is refused; several are tried by halves, apart from the others.
        """
        others = [held.seq for n, (held, _) in enumerate(plan.items) if n not in suspects]
        # Those that share a topic share its fate.
        chosen = sorted((_topic(plan.items[n][1]), n) for n in suspects)
        seqs = [plan.items[n][0].seq for _, n in chosen]
        if len(seqs) == 1:
            [(topic, n)] = chosen
            self._refused[seqs[0]] = (topic, suspects[n])
            others = seqs + others
        else:
            middle = len(seqs) // 2
            self._apart.extend((seqs[:middle], seqs[middle:]))
        self._due.extendleft(reversed(others))

    def look_again(self, must_wait: Callable[[str], bool]) -> None:
        """Plan anew what had to wait for a topic that takes records now, or never will."""
        for topic in [topic for topic in self._waiting if not must_wait(topic)]:
            self._due.extend(self._waiting.pop(topic))

    def next_ms(self, now_ms: int) -> int:
        """When to plan again, as far as can be seen now."""
        if self._due or self._apart:
            return now_ms
        next_ms = self._wheel.next_expiry_ms()
        # The far ones are looked at long before the last of the near.
        latest_ms = now_ms + NEAR_MS // 4
        return latest_ms if next_ms is None else min(next_ms, latest_ms)

    def first_due_ms(self) -> int | None:
        """The earliest due time of all entries, or the time of now if something is due."""
        if self._due or self._apart or self._waiting:
            return self._now_ms
        known = (self._wheel.next_expiry_ms(), self._shelf.first_far_ms())
        return min((ms for ms in known if ms is not None), default=None)

    def _add(self, plan: Plan, seqs: list[int], now_ms: int, verdict: Verdict) -> int:
        """Put to the plan what is to be done for these; returns how many bytes they have."""
        size = 0
        # A number may be due twice, once by an earlier due time of its entry.
        planned = {held.seq for held, _ in plan.items}
        for held in self._shelf.get([seq for seq in dict.fromkeys(seqs) if seq not in planned]):
            if held.entry.due_ms > now_ms:
                self._schedule(held.entry.due_ms, held.seq)
                continue
            try:
                action = self._machine.act(held.entry, now_ms)
                refusal = self._refusal(held, action, verdict)
                if refusal is not None:
                    action = self._machine.refused(held.entry, *refusal, now_ms)
                    for outgoing in action.send:
                        if verdict(outgoing) is not None:
                            raise Wait(outgoing.topic)
                    plan.letters.add(len(plan.items))
            except Wait as wait:
                self._waiting.setdefault(wait.topic, []).append(held.seq)
                continue
            except Exception:
                # It stays in the state; who comes next, maybe a newer version, tries again.
                _log.exception("nothing can be done for %s", held.entry.id)
                continue
            plan.items.append((held, action))
            size += len(held.entry.body)
        return size

    def _refusal(self, held: Held, action: Action, verdict: Verdict) -> tuple[str, str] | None:
        """The topic that never takes what an action sends, and what it says."""
        known = self._refused.get(held.seq)
        for outgoing in action.send:
            # What was refused may have been decided otherwise since, and go elsewhere.
            if known is not None and outgoing.topic == known[0]:
                return known
            reason = verdict(outgoing)
            if reason is not None:
                return outgoing.topic, reason
        return None

    def _without(self, entry: Entry | None, id: str, place: Place) -> Entry | None:
        """What is left of an entry when one of its records is deleted."""
        if entry is None or entry.place == place:
            self._gone.pop((id, place), None)
            return None
        if place in entry.also:
            return entry._replace(also=tuple(other for other in entry.also if other != place))
        self._gone.pop((id, place), None)
        return entry

    def _store(
        self, known: dict[str, Held], now: dict[str, Entry | None], rewritten: set[str]
    ) -> None:
        new, removed, changed = [], [], []
        for id, entry in now.items():
            held = known.get(id)
            if held is None:
                if entry is not None:
                    new.append(entry)
            elif entry is None:
                removed.append(held.seq)
            elif entry.place != held.entry.place or id in rewritten:
                removed.append(held.seq)
                new.append(entry)
            elif entry != held.entry:
                changed.append(Held(held.seq, entry))
                if entry.due_ms != held.entry.due_ms:
                    self._schedule(entry.due_ms, held.seq)
        if removed:
            self._remove(removed)
        if changed:
            self._shelf.update(changed, self._horizon)
        self._put(new)

    def _remove(self, seqs: Sequence[int]) -> None:
        self._shelf.remove(seqs)
        if self._refused:
            for seq in seqs:
                self._refused.pop(seq, None)

    def _put(self, new: Sequence[Entry]) -> None:
        if new:
            for seq, entry in zip(self._shelf.put(new, self._horizon), new, strict=True):
                self._schedule(entry.due_ms, seq)

    def _schedule(self, due_ms: int, seq: int) -> None:
        """Put it on the wheel, unless it is far; the far ones are fetched from the cache."""
        if (due_ms, seq) <= self._horizon:
            self._wheel.add(due_ms, seq)
            self._near += 1

    def _reset(self, now_ms: int) -> None:
        self._wheel: TimingWheel[int] = TimingWheel(TICK_MS, WHEEL_SIZE, now_ms)
        self._shelf.spill()
        # All entries up to here, by due time and number, are on the wheel or due.
        self._horizon: tuple[int, int] = (-1, 0)
        self._near = 0
        self._now_ms = now_ms

    def _advance(self, now_ms: int) -> None:
        if now_ms < self._now_ms:
            # The clock was set back: what the wheel calls past may be ahead again.
            self._reset(now_ms)
        self._now_ms = now_ms
        if self._horizon[0] < now_ms + NEAR_MS // 2 and self._near < NEAR_MAX // 2:
            self._load(now_ms + NEAR_MS)
        expired = self._wheel.advance(now_ms)
        self._near -= len(expired)
        self._due.extend(expired)

    def _load(self, until_ms: int) -> None:
        rows = self._shelf.next_due(self._horizon, until_ms, NEAR_MAX)
        for due_ms, seq in rows:
            self._wheel.add(due_ms, seq)
        self._near += len(rows)
        # All that is due by then is there, or the last one is where to go on.
        self._horizon = rows[-1] if len(rows) == NEAR_MAX else (until_ms, 1 << 62)

    def _is_late(self, now_ms: int) -> bool:
        if self._gone_since_ms is None:
            self._gone_since_ms = now_ms
        return now_ms - self._gone_since_ms >= GONE_MS


def _topic(action: Action) -> str:
    return action.send[-1].topic if action.send else ""
