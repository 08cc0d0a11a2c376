"""Near and far entries are one collection, wherever each is stored."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.ledger import entries as entries_module
from headrace.ledger.entries import Entries, EntryCache, NumberedEntry
from headrace.ledger.machine import CommandPosition, LedgerEntry

HORIZON = (1_000, 1 << 62)
DUES = strategies.integers(0, 2_000)


def entry(id: str, due_ms: int) -> LedgerEntry:
    return LedgerEntry(id, "k", due_ms, 0, CommandPosition(0, 0), body=id.encode())


class EntriesModel(RuleBasedStateMachine):
    """Against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = Entries(EntryCache())
        self.model: dict[int, LedgerEntry] = {}
        self.count = 0

    @rule(dues=strategies.lists(DUES, max_size=4))
    def put(self, dues: list[int]) -> None:
        new = [entry(f"id{self.count + at}", due) for at, due in enumerate(dues)]
        self.count += len(new)
        for seq, one in zip(self.entries.add(new, HORIZON), new, strict=True):
            assert seq not in self.model
            self.model[seq] = one

    @rule(chance=strategies.randoms(), due_ms=DUES)
    def update(self, chance: object, due_ms: int) -> None:
        for seq in self.some(chance):
            id = self.model[seq].id
            found = self.entries.find({id})[id]
            assert found.seq == seq
            changed = found.entry._replace(due_ms=due_ms)
            self.entries.update([NumberedEntry(seq, changed)], HORIZON)
            self.model[seq] = self.model[seq]._replace(due_ms=due_ms)

    @rule(chance=strategies.randoms())
    def remove(self, chance: object) -> None:
        seqs = self.some(chance)
        self.entries.remove(seqs)
        for seq in seqs:
            del self.model[seq]

    @rule()
    def spill(self) -> None:
        self.entries.spill()
        moments = sorted((one.due_ms, seq) for seq, one in self.model.items())
        assert self.entries.next_far((-1, 0), 5_000, 10_000) == moments

    @invariant()
    def all_are_there(self) -> None:
        seqs = [*self.model, 10_000]
        assert self.entries.get(seqs) == [NumberedEntry(*pair) for pair in self.model.items()]
        assert self.entries.count == len(self.model)
        far = self.entries.next_far((-1, 0), 5_000, 10_000)
        assert {seq for due, seq in self.moments() if due > HORIZON[0]} <= {seq for _, seq in far}
        assert set(far) <= set(self.moments())

    def moments(self) -> list[tuple[int, int]]:
        return [(one.due_ms, seq) for seq, one in self.model.items()]

    def some(self, chance: object) -> list[int]:
        return [seq for seq in self.model if chance.random() < 0.3]  # type: ignore[attr-defined]


EntriesModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEntriesModel = EntriesModel.TestCase


def test_what_does_not_fit_into_memory_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "NEAR_BYTES_MAX", 2_000)
    near = Entries(EntryCache())
    near.add([entry(f"id{number}", 5) for number in range(10)], HORIZON)
    assert near.count == 10
    assert 0 < len(near.next_far((-1, 0), 5_000, 100)) < 10
    assert len(near.find({f"id{number}" for number in range(12)})) == 10
