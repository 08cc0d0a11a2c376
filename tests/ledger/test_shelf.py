"""The shelf: near and far entries are one collection, whatever lies where."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.ledger import shelf as shelf_module
from headrace.ledger.cache import Cache, Held
from headrace.ledger.machine import Entry, Place
from headrace.ledger.shelf import Shelf

HORIZON = (1_000, 1 << 62)
DUES = strategies.integers(0, 2_000)


def entry(id: str, due_ms: int) -> Entry:
    return Entry(id, "k", due_ms, 0, Place(0, 0), body=id.encode())


class ShelfModel(RuleBasedStateMachine):
    """Against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf(Cache())
        self.model: dict[int, Entry] = {}
        self.count = 0

    @rule(dues=strategies.lists(DUES, max_size=4))
    def put(self, dues: list[int]) -> None:
        new = [entry(f"id{self.count + at}", due) for at, due in enumerate(dues)]
        self.count += len(new)
        for seq, one in zip(self.shelf.put(new, HORIZON), new, strict=True):
            assert seq not in self.model
            self.model[seq] = one

    @rule(chance=strategies.randoms(), due_ms=DUES)
    def update(self, chance: object, due_ms: int) -> None:
        for seq in self.some(chance):
            id = self.model[seq].id
            found = self.shelf.find({id})[id]
            assert found.seq == seq
            changed = found.entry._replace(due_ms=due_ms)
            self.shelf.update([Held(seq, changed)], HORIZON)
            self.model[seq] = self.model[seq]._replace(due_ms=due_ms)

    @rule(chance=strategies.randoms())
    def remove(self, chance: object) -> None:
        seqs = self.some(chance)
        self.shelf.remove(seqs)
        for seq in seqs:
            del self.model[seq]

    @rule()
    def spill(self) -> None:
        self.shelf.spill()
        moments = sorted((one.due_ms, seq) for seq, one in self.model.items())
        assert self.shelf.next_due((-1, 0), 5_000, 10_000) == moments

    @invariant()
    def all_are_there(self) -> None:
        seqs = [*self.model, 10_000]
        assert self.shelf.get(seqs) == [Held(*pair) for pair in self.model.items()]
        assert self.shelf.count == len(self.model)
        far = self.shelf.next_due((-1, 0), 5_000, 10_000)
        assert {seq for due, seq in self.moments() if due > HORIZON[0]} <= {seq for _, seq in far}
        assert set(far) <= set(self.moments())

    def moments(self) -> list[tuple[int, int]]:
        return [(one.due_ms, seq) for seq, one in self.model.items()]

    def some(self, chance: object) -> list[int]:
        return [seq for seq in self.model if chance.random() < 0.3]  # type: ignore[attr-defined]


ShelfModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestShelfModel = ShelfModel.TestCase


def test_what_does_not_fit_into_memory_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "NEAR_BYTES_MAX", 2_000)
    shelf = Shelf(Cache())
    shelf.put([entry(f"id{number}", 5) for number in range(10)], HORIZON)
    assert shelf.count == 10
    assert 0 < len(shelf.next_due((-1, 0), 5_000, 100)) < 10
    assert len(shelf.find({f"id{number}" for number in range(12)})) == 10
