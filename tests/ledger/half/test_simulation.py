"""Thousands of stories with crashes at every step; and mutants that they must catch."""

from __future__ import annotations

import pytest
from tests.ledger.half.simulation import Story
from tests.ledger.half.world import LIMITS

from headrace.ledger.half.machine import HalfMachine, state_of
from headrace.ledger.half.states import State
from headrace.ledger.machine import Action, Folded, LedgerEntry

SEEDS = 2_000
BLOCKS = 4
MOVES = 150
MUTANT_SEEDS = 1_000


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_story_ends_wrong(block: int) -> None:
    steps = fenced = 0
    for seed in range(block, SEEDS, BLOCKS):
        story = Story(seed)
        try:
            story.run(MOVES)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        steps += story.steps
        fenced += story.fenced
    assert steps > 10 * SEEDS // BLOCKS, "the stories are too quiet to show anything"
    assert fenced


class ForgetsAtOnce(HalfMachine):
    """Keeps no memory of a decision, as if a tombstone were enough."""

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        action = super().act(entry, now_ms)
        if action.entry is not None and state_of(action.entry) is State.COMMITTED:
            return action._replace(entry=None)
        return action


class LastDecisionWins(HalfMachine):
    """Lets a later decision overrule the first while that is not yet carried out."""

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        folded = super().fold(known, new)
        entry = folded.entry
        if entry is not None and entry.state == f"{State.ROLLING_BACK}!":
            return folded._replace(entry=entry._replace(state=State.COMMITTING))
        return folded


class LosesUnreadDecisions(HalfMachine):
    """Takes the service's own record for all that is known."""

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        if known is not None and known.position == new.position:
            return Folded(new._replace(other_positions=known.other_positions))
        return super().fold(known, new)


class NeedsPrepareFirst(HalfMachine):
    """Forgets a decision that comes before its prepare."""

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        if known is None and state_of(new) in (State.EARLY_COMMIT, State.EARLY_ROLLBACK):
            return Folded(None, (new.position,))
        return super().fold(known, new)


class DropsTheExhausted(HalfMachine):
    """Gives up after the last check."""

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        action = super().act(entry, now_ms)
        if action.entry is not None and action.entry.state == State.PARKED:
            return Action((), None)
        return action


class TrustsSilence(HalfMachine):
    """Delivers what nobody has decided when the checks are used up."""

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        if entry.state == State.WAITING and entry.count >= self.limits.checks_max:
            entry = entry._replace(state=State.COMMITTING)
        return super().act(entry, now_ms)


@pytest.mark.parametrize(
    "mutant",
    [
        ForgetsAtOnce,
        LastDecisionWins,
        LosesUnreadDecisions,
        NeedsPrepareFirst,
        DropsTheExhausted,
        TrustsSilence,
    ],
)
def test_a_mutant_is_caught(mutant: type[HalfMachine]) -> None:
    assert any(goes_wrong(seed, mutant) for seed in range(MUTANT_SEEDS))


def goes_wrong(seed: int, mutant: type[HalfMachine]) -> bool:
    """Whether the story of a seed ends wrong."""
    try:
        Story(seed, mutant(LIMITS)).run(MOVES)
    except AssertionError:
        return True
    return False
