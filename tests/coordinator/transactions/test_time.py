"""Transactions whose time is up, ids that nobody uses, and what a restart makes of the time."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.harness import ID, P0, TIMEOUT_MS, V1, V2, Harness

from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.effects import Note, Producer, SetTimer
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode


def ongoing(version: int = V1) -> tuple[Harness, Producer]:
    harness = Harness()
    producer = harness.initialized()
    harness.add(P0, version=version)
    return harness, producer


def test_a_transaction_is_aborted_and_its_producer_fenced_when_its_time_is_up() -> None:
    harness, producer = ongoing()
    harness.pass_time(TIMEOUT_MS - 1)
    assert not harness.endings
    harness.pass_time(1)
    assert harness.known.state is State.PREPARE_ABORT
    (ending,) = harness.endings
    assert ending.producer == Producer(producer.id, producer.epoch + 1)
    assert not ending.committed
    harness.settle()
    assert harness.end(True, producer=producer).error is ErrorCode.PRODUCER_FENCED
    assert harness.add(P0, producer=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_newer_client_that_timed_out_may_abort_and_go_on() -> None:
    harness, producer = ongoing(V2)
    harness.pass_time(TIMEOUT_MS)
    harness.settle()
    result = harness.end(True, producer=producer, version=V2)
    assert result.error is ErrorCode.INVALID_TXN_STATE, "what it wanted to commit is gone"
    result = harness.end(False, producer=producer, version=V2)
    assert result.producer == Producer(producer.id, producer.epoch + 1)
    assert not harness.add(P0, producer=result.producer, version=V2).error


def test_what_rings_too_early_or_too_late_does_nothing() -> None:
    harness, _ = ongoing()
    on_timer = harness.coordinator.on_timer
    result = on_timer(ID, harness.now)
    assert (result.records, result.timers) == ([], [SetTimer(ID, TIMEOUT_MS)])
    assert not on_timer("unknown", harness.now).records
    harness.end(True)
    assert not on_timer(ID, Now(0, 10 * TIMEOUT_MS)).records


def test_the_timer_is_called_off_by_the_end() -> None:
    harness, _ = ongoing()
    harness.end(True)
    assert not harness.timers


def test_an_abort_that_cannot_be_written_can_be_tried_again() -> None:
    harness, _ = ongoing()
    late = Now(harness.now.wall_ms + TIMEOUT_MS, TIMEOUT_MS)
    for _ in range(2):  # nothing is replayed
        result = harness.coordinator.on_timer(ID, late)
        assert result.records
        assert (ID, Note.TIMED_OUT) in result.notes


def test_an_end_that_cannot_be_written_leaves_the_clock_running() -> None:
    harness, producer = ongoing()
    assert harness.coordinator.end(ID, producer, True, V1, 5, harness.now).records
    harness.pass_time(TIMEOUT_MS)
    assert harness.known.state is State.PREPARE_ABORT


@pytest.mark.parametrize(
    ("away_ms", "left_ms"),
    [(0, TIMEOUT_MS), (4_000, 6_000), (TIMEOUT_MS, 0), (99 * TIMEOUT_MS, 0), (-5_000, TIMEOUT_MS)],
)
def test_a_restart_leaves_a_transaction_the_rest_of_its_time(away_ms: int, left_ms: int) -> None:
    harness, _ = ongoing()
    harness.now = Now(harness.now.wall_ms + away_ms, 77)  # the wall clock may even have gone back
    harness.restart()
    assert harness.timers == {ID: 77 + left_ms}
    harness.pass_time(left_ms)
    assert harness.known.state is State.PREPARE_ABORT


@pytest.mark.parametrize("committed", [True, False])
def test_a_restart_brings_a_decided_transaction_to_its_end(committed: bool) -> None:
    harness, producer = ongoing()
    harness.end(committed)
    harness.restart()
    (ending,) = harness.endings
    assert ending == (ID, producer, committed, frozenset({P0}), False)
    harness.settle()
    assert harness.known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


def test_fences_survive_a_restart() -> None:
    harness = Harness()
    zombie = harness.initialized()
    present = harness.initialized()
    harness.restart()
    assert harness.add(P0, producer=zombie).error is ErrorCode.PRODUCER_FENCED
    assert not harness.add(P0, producer=present).error


def test_ids_that_nobody_uses_are_forgotten() -> None:
    harness = Harness(TransactionSettings(id_expiration_ms=1_000))
    harness.initialized()
    assert list(harness.coordinator.expire(harness.now)) == []
    harness.pass_time(1_000)
    (result,) = harness.coordinator.expire(harness.now)
    assert result.notes == [(ID, Note.EXPIRED)]
    harness.carry_out(result)
    assert ID not in harness.coordinator.transactions
    harness.restart()
    assert ID not in harness.coordinator.transactions


def test_an_open_transaction_is_never_forgotten() -> None:
    harness = Harness(TransactionSettings(id_expiration_ms=1_000))
    harness.initialized()
    harness.add(P0)
    harness.now = Now(harness.now.wall_ms + 1_000_000, 0)
    assert list(harness.coordinator.expire(harness.now)) == []
    harness.end(True)
    harness.now = Now(harness.now.wall_ms + 1_000_000, 0)
    assert list(harness.coordinator.expire(harness.now)) == []
    harness.settle()
    harness.now = Now(harness.now.wall_ms + 1_000_000, 0)
    assert len(list(harness.coordinator.expire(harness.now))) == 1
