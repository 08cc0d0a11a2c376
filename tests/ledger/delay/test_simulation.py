"""Thousands of stories with crashes and take-overs between any two steps: nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.ledger.delay import world
from tests.ledger.delay.world import World
from tests.ledger.instances import StateOwner
from tests.ledger.kafka_model import Kafka

from headrace.ledger.machine import LedgerMachine
from headrace.ledger.state_partition import PlannedTransaction

SEEDS = 2_000
BLOCKS = 8
MOVES = 120
MUTANT_SEEDS = 1_000


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_story_has_an_early_a_lost_or_a_second_delivery(block: int) -> None:
    steps = 0
    for seed in range(block, SEEDS, BLOCKS):
        world = World(seed)
        try:
            world.run(MOVES)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        steps += world.steps
    assert steps > SEEDS // BLOCKS, "the stories are too quiet to show anything"


def is_caught() -> bool:
    """Whether some story goes wrong."""
    for seed in range(MUTANT_SEEDS):
        try:
            World(seed).run(MOVES)
        except AssertionError:
            return True
    return False


def test_a_keeper_that_reads_only_to_the_last_stable_offset_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hasty(StateOwner):
        """Does not wait for what an open transaction hides."""

        def __init__(self, *args: Kafka | LedgerMachine) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            self._until = self._log.stable_end

    monkeypatch.setattr(world, "StateOwner", Hasty)
    assert is_caught()


def test_a_keeper_that_does_not_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kafka, "check", lambda *_: None)
    assert is_caught()


def test_a_keeper_that_leaves_superseded_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PlannedTransaction.writes

    def writes(plan: PlannedTransaction, writer: int) -> Iterable[tuple[bytes, bytes | None]]:
        return whole(PlannedTransaction(plan.items), writer)

    monkeypatch.setattr(PlannedTransaction, "writes", writes)
    assert is_caught()


def test_an_intake_that_commits_its_offsets_alone_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def send_offset(producer: object, topic: str, partition: int, offset: int) -> None:
        producer._kafka.offsets[topic, partition] = offset  # type: ignore[attr-defined]

    monkeypatch.setattr("tests.ledger.kafka_model.Producer.send_offset", send_offset)
    assert is_caught()
