"""One state partition in its owner's memory: an entry for each id, and the transactions to run now.

Pure but for its cache: records and the time come in, planned transactions come out. Entries due
soon are on a timing wheel, the others in the cache; a due entry waits in order until the
transaction that acts on it is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from headrace.ledger.entries import DueOrder, Entries, EntryCache, NumberedEntry
from headrace.ledger.machine import (
    Action,
    CommandPosition,
    LedgerEntry,
    LedgerMachine,
    OutgoingRecord,
)
from headrace.ledger.records import read_key, read_value, state_key, state_value
from headrace.telemetry.alarms import NamedAlarm
from headrace.timing.wheel import TimingWheel

TICK_MS = 1
WHEEL_SIZE = 256
# The wheel holds the entries due within this time, and at most this many.
NEAR_MS = 10_000
NEAR_MAX = 20_000
# Superseded records are deleted with the next action, or on their own after this time.
SUPERSEDED_MS = 1_000
SUPERSEDED_MAX = 5_000
# A transaction sends at most about this much; its entries are read this many at a time.
TRANSACTION_BYTES_MAX = 8_000_000
READ_ENTRIES = 250

_log = logging.getLogger("headrace.ledger")

# Returns None if a record's topic accepts it, else why it never will; TargetNotReady if it may
# later.
CheckTarget = Callable[[OutgoingRecord], str | None]


class TargetNotReady(Exception):
    """A topic accepts nothing now, or it is not known yet whether it does."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@dataclass(slots=True)
class PlannedTransaction:
    """What one transaction sends, and what it writes to the state partition."""

    items: list[tuple[NumberedEntry, Action]] = field(default_factory=list)
    superseded: list[tuple[str, CommandPosition]] = field(default_factory=list)
    # Indexes of items that become dead letters: their target is not at fault if they fail again.
    dead_letters: set[int] = field(default_factory=set)

    @property
    def sends(self) -> Iterable[OutgoingRecord]:
        """The records to send, in order."""
        return (outgoing for _, action in self.items for outgoing in action.send)

    def writes(self, writer: int) -> Iterable[tuple[bytes, bytes | None]]:
        """Keys and values for the state partition; None deletes."""
        for id, position in self.superseded:
            yield state_key(id, position), None
        for (_, entry), action in self.items:
            for position in entry.other_positions:
                yield state_key(entry.id, position), None
            after = action.entry
            value = None if after is None else state_value(after, writer)
            yield state_key(entry.id, entry.position), value

    def __bool__(self) -> bool:
        return bool(self.items or self.superseded)


class StatePartition:
    """The entries of one state partition, for one thread.

    `writer` marks the records that this owner writes: it has applied them already when it reads
    them back.
    """

    def __init__(self, machine: LedgerMachine, cache: EntryCache, writer: int, now_ms: int) -> None:
        self.writer = writer
        self._machine = machine
        self._entries = Entries(cache)
        # Keys whose deletion this owner has written and has not read back yet.
        self._own_deletions: set[bytes] = set()
        self._superseded: dict[tuple[str, CommandPosition], None] = {}
        self._superseded_since_ms: int | None = None
        # Numbers of due entries. Those that may have made a transaction fail are tried in lists of
        # their own, in turn with the others.
        self._due: deque[int] = deque()
        self._isolated: deque[list[int]] = deque()
        self._is_isolated_next = True
        # Due entries whose topic accepts nothing now.
        self._waiting: dict[str, list[int]] = {}
        # By number: the topic that refused an entry for good, and why.
        self._refused: dict[int, tuple[str, str]] = {}
        self._reset(now_ms)

    @property
    def pending(self) -> int:
        """How many entries there are."""
        return self._entries.count

    def apply(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply records of the state partition, in their order."""
        parsed = []
        own_deletions = self._own_deletions
        for key, value in records:
            if value is None and key in own_deletions:
                own_deletions.discard(key)
                continue
            try:
                id, position = read_key(key)
            except ValueError:
                _log.warning("skipping a state record with a malformed key: %.100r", key)
            else:
                parsed.append((id, position, value))
        known = self._entries.find({id for id, _, _ in parsed})
        now: dict[str, LedgerEntry | None] = {id: numbered.entry for id, numbered in known.items()}
        rewritten: set[str] = set()
        for id, position, value in parsed:
            entry = now.get(id)
            if value is None:
                now[id] = self._without(entry, id, position)
                continue
            try:
                new, writer = read_value(id, position, value)
            except ValueError as error:
                _log.warning("skipping a state record: %s", error)
                continue
            if writer == self.writer:
                continue
            try:
                folded, superseded = self._machine.fold(entry, new)
            except Exception:
                # A newer version may have written it; it must not hold up all records behind it.
                _log.exception("skipping a state record of %s", id)
                continue
            if entry and folded and entry.position == folded.position == position:
                # An earlier owner has rewritten it: the newest body counts.
                folded = folded._replace(body=new.body)
                rewritten.add(id)
            now[id] = folded
            for other in superseded:
                self._superseded[id, other] = None
        self._store(known, now, rewritten)

    def plan(
        self, now_ms: int, entries_max: int, check_target: CheckTarget = lambda _: None
    ) -> PlannedTransaction:
        """The next transaction; call `committed`, `put_back` or `isolate` with its outcome."""
        self._advance(now_ms)
        plan = PlannedTransaction()
        if len(self._superseded) > SUPERSEDED_MAX:
            plan.superseded = list(islice(self._superseded, SUPERSEDED_MAX))
            return plan
        if self._isolated and (self._is_isolated_next or not self._due):
            self._is_isolated_next = False
            self._plan_entries(plan, self._isolated.popleft(), now_ms, check_target)
        else:
            self._is_isolated_next = True
            size = 0
            while self._due and len(plan.items) < entries_max and size < TRANSACTION_BYTES_MAX:
                count = min(READ_ENTRIES, entries_max - len(plan.items), len(self._due))
                seqs = [self._due.popleft() for _ in range(count)]
                size += self._plan_entries(plan, seqs, now_ms, check_target)
        if self._superseded and (plan.items or self._is_late(now_ms)):
            # All of them: a superseded entry must not outlive its successor.
            plan.superseded = list(self._superseded)
        return plan

    def committed(self, plan: PlannedTransaction) -> list[NamedAlarm]:
        """The transaction was committed; returns the alarms to ring."""
        for superseded in plan.superseded:
            self._superseded.pop(superseded, None)
        if not self._superseded:
            self._superseded_since_ms = None
        self._own_deletions.update(key for key, value in plan.writes(self.writer) if value is None)
        self._remove([numbered.seq for numbered, _ in plan.items])
        rewritten = [action.entry for _, action in plan.items if action.entry is not None]
        self._add([entry._replace(other_positions=()) for entry in rewritten])
        return [action.alarm for _, action in plan.items if action.alarm is not None]

    def put_back(self, plan: PlannedTransaction) -> None:
        """The transaction was aborted by no fault of its entries: they are due as before."""
        self._due.extendleft(numbered.seq for numbered, _ in reversed(plan.items))

    def isolate(self, plan: PlannedTransaction, suspects: Mapping[int, str]) -> None:
        """The transaction was aborted because of one of these items; the others are due as before.

        `suspects` are reasons by index. A single suspect is refused for good; several are halved,
        and each half is tried in a transaction of its own.
        """
        others = [numbered.seq for n, (numbered, _) in enumerate(plan.items) if n not in suspects]
        # Entries of one topic are likely to fail together, so keep them in one half.
        chosen = sorted((_topic(plan.items[n][1]), n) for n in suspects)
        seqs = [plan.items[n][0].seq for _, n in chosen]
        if len(seqs) == 1:
            [(topic, n)] = chosen
            self._refused[seqs[0]] = (topic, suspects[n])
            others = seqs + others
        else:
            middle = len(seqs) // 2
            self._isolated.extend((seqs[:middle], seqs[middle:]))
        self._due.extendleft(reversed(others))

    def retry_waiting(self, must_wait: Callable[[str], bool]) -> None:
        """Make entries due again whose topic need not be waited for any longer."""
        for topic in [topic for topic in self._waiting if not must_wait(topic)]:
            self._due.extend(self._waiting.pop(topic))

    def next_ms(self, now_ms: int) -> int:
        """When to plan again, at the latest."""
        if self._due or self._isolated:
            return now_ms
        next_ms = self._wheel.next_expiry_ms()
        # Far entries are loaded long before the last near one is due.
        latest_ms = now_ms + NEAR_MS // 4
        return latest_ms if next_ms is None else min(next_ms, latest_ms)

    def first_due_ms(self) -> int | None:
        """The earliest due time of all entries; now if one is due already."""
        if self._due or self._isolated or self._waiting:
            return self._now_ms
        known = (self._wheel.next_expiry_ms(), self._entries.first_far_ms())
        return min((ms for ms in known if ms is not None), default=None)

    def _plan_entries(
        self, plan: PlannedTransaction, seqs: list[int], now_ms: int, check_target: CheckTarget
    ) -> int:
        """Add the actions of due entries to a plan; returns the size of their bodies."""
        size = 0
        # A number is due twice if its entry was rescheduled.
        planned = {numbered.seq for numbered, _ in plan.items}
        for numbered in self._entries.get(
            [seq for seq in dict.fromkeys(seqs) if seq not in planned]
        ):
            if numbered.entry.due_ms > now_ms:
                self._schedule(numbered.entry.due_ms, numbered.seq)
                continue
            try:
                action = self._machine.act(numbered.entry, now_ms)
                refusal = self._refusal(numbered, action, check_target)
                if refusal is not None:
                    action = self._machine.refused(numbered.entry, *refusal, now_ms)
                    for outgoing in action.send:
                        if check_target(outgoing) is not None:
                            raise TargetNotReady(outgoing.topic)
                    plan.dead_letters.add(len(plan.items))
            except TargetNotReady as error:
                self._waiting.setdefault(error.topic, []).append(numbered.seq)
                continue
            except Exception:
                # It stays in the state topic; the next owner, maybe a newer version, tries again.
                _log.exception("cannot act on %s", numbered.entry.id)
                continue
            plan.items.append((numbered, action))
            size += len(numbered.entry.body)
        return size

    def _refusal(
        self, numbered: NumberedEntry, action: Action, check_target: CheckTarget
    ) -> tuple[str, str] | None:
        """The topic that refuses what an action sends for good, and why."""
        known = self._refused.get(numbered.seq)
        for outgoing in action.send:
            # The entry may have changed since it was refused, and go to another topic now.
            if known is not None and outgoing.topic == known[0]:
                return known
            reason = check_target(outgoing)
            if reason is not None:
                return outgoing.topic, reason
        return None

    def _without(
        self, entry: LedgerEntry | None, id: str, position: CommandPosition
    ) -> LedgerEntry | None:
        """What is left of an entry when one of its records is deleted."""
        if entry is None or entry.position == position:
            self._superseded.pop((id, position), None)
            return None
        if position in entry.other_positions:
            left = tuple(other for other in entry.other_positions if other != position)
            return entry._replace(other_positions=left)
        self._superseded.pop((id, position), None)
        return entry

    def _store(
        self,
        known: dict[str, NumberedEntry],
        now: dict[str, LedgerEntry | None],
        rewritten: set[str],
    ) -> None:
        new, removed, changed = [], [], []
        for id, entry in now.items():
            numbered = known.get(id)
            if numbered is None:
                if entry is not None:
                    new.append(entry)
            elif entry is None:
                removed.append(numbered.seq)
            elif entry.position != numbered.entry.position or id in rewritten:
                removed.append(numbered.seq)
                new.append(entry)
            elif entry != numbered.entry:
                changed.append(NumberedEntry(numbered.seq, entry))
                if entry.due_ms != numbered.entry.due_ms:
                    self._schedule(entry.due_ms, numbered.seq)
        if removed:
            self._remove(removed)
        if changed:
            self._entries.update(changed, self._horizon)
        self._add(new)

    def _remove(self, seqs: Sequence[int]) -> None:
        self._entries.remove(seqs)
        if self._refused:
            for seq in seqs:
                self._refused.pop(seq, None)

    def _add(self, new: Sequence[LedgerEntry]) -> None:
        if new:
            for seq, entry in zip(self._entries.add(new, self._horizon), new, strict=True):
                self._schedule(entry.due_ms, seq)

    def _schedule(self, due_ms: int, seq: int) -> None:
        """Put an entry on the wheel, unless it is far: `_load` does that later."""
        if (due_ms, seq) <= self._horizon:
            self._wheel.add(due_ms, seq)
            self._near += 1

    def _reset(self, now_ms: int) -> None:
        self._wheel: TimingWheel[int] = TimingWheel(TICK_MS, WHEEL_SIZE, now_ms)
        self._entries.spill()
        # All entries up to here are on the wheel or due.
        self._horizon: DueOrder = (-1, 0)
        self._near = 0
        self._now_ms = now_ms

    def _advance(self, now_ms: int) -> None:
        if now_ms < self._now_ms:
            # The clock was set back: entries that have expired may be in the future again.
            self._reset(now_ms)
        self._now_ms = now_ms
        if self._horizon[0] < now_ms + NEAR_MS // 2 and self._near < NEAR_MAX // 2:
            self._load(now_ms + NEAR_MS)
        expired = self._wheel.advance(now_ms)
        self._near -= len(expired)
        self._due.extend(expired)

    def _load(self, until_ms: int) -> None:
        rows = self._entries.next_far(self._horizon, until_ms, NEAR_MAX)
        for due_ms, seq in rows:
            self._wheel.add(due_ms, seq)
        self._near += len(rows)
        # Either everything due by then is loaded, or the next load continues after the last row.
        self._horizon = rows[-1] if len(rows) == NEAR_MAX else (until_ms, 1 << 62)

    def _is_late(self, now_ms: int) -> bool:
        if self._superseded_since_ms is None:
            self._superseded_since_ms = now_ms
        return now_ms - self._superseded_since_ms >= SUPERSEDED_MS


def _topic(action: Action) -> str:
    return action.send[-1].topic if action.send else ""
