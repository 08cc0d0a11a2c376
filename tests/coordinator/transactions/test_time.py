"""Transactions whose time is up, ids that nobody uses, and what a restart makes of the time."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.stage import ID, P0, TIMEOUT_MS, V1, V2, Stage

from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.effects import Note, Producer, SetTimer
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode


def ongoing(version: int = V1) -> tuple[Stage, Producer]:
    stage = Stage()
    producer = stage.initialized()
    stage.add(P0, version=version)
    return stage, producer


def test_a_transaction_is_aborted_and_its_producer_fenced_when_its_time_is_up() -> None:
    stage, producer = ongoing()
    stage.pass_time(TIMEOUT_MS - 1)
    assert not stage.endings
    stage.pass_time(1)
    assert stage.known.state is State.PREPARE_ABORT
    (ending,) = stage.endings
    assert ending.producer == Producer(producer.id, producer.epoch + 1)
    assert not ending.committed
    stage.settle()
    assert stage.end(True, producer=producer).error is ErrorCode.PRODUCER_FENCED
    assert stage.add(P0, producer=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_newer_client_that_timed_out_may_abort_and_go_on() -> None:
    stage, producer = ongoing(V2)
    stage.pass_time(TIMEOUT_MS)
    stage.settle()
    result = stage.end(True, producer=producer, version=V2)
    assert result.error is ErrorCode.INVALID_TXN_STATE, "what it wanted to commit is gone"
    result = stage.end(False, producer=producer, version=V2)
    assert result.producer == Producer(producer.id, producer.epoch + 1)
    assert not stage.add(P0, producer=result.producer, version=V2).error


def test_what_rings_too_early_or_too_late_does_nothing() -> None:
    stage, _ = ongoing()
    on_timer = stage.coordinator.on_timer
    result = on_timer(ID, stage.now)
    assert (result.records, result.timers) == ([], [SetTimer(ID, TIMEOUT_MS)])
    assert not on_timer("unknown", stage.now).records
    stage.end(True)
    assert not on_timer(ID, Now(0, 10 * TIMEOUT_MS)).records


def test_the_timer_is_called_off_by_the_end() -> None:
    stage, _ = ongoing()
    stage.end(True)
    assert not stage.timers


def test_an_abort_that_cannot_be_written_can_be_tried_again() -> None:
    stage, _ = ongoing()
    late = Now(stage.now.wall_ms + TIMEOUT_MS, TIMEOUT_MS)
    for _ in range(2):  # nothing is replayed
        result = stage.coordinator.on_timer(ID, late)
        assert result.records
        assert (ID, Note.TIMED_OUT) in result.notes


def test_an_end_that_cannot_be_written_leaves_the_clock_running() -> None:
    stage, producer = ongoing()
    assert stage.coordinator.end(ID, producer, True, V1, 5, stage.now).records
    stage.pass_time(TIMEOUT_MS)
    assert stage.known.state is State.PREPARE_ABORT


@pytest.mark.parametrize(
    ("away_ms", "left_ms"),
    [(0, TIMEOUT_MS), (4_000, 6_000), (TIMEOUT_MS, 0), (99 * TIMEOUT_MS, 0), (-5_000, TIMEOUT_MS)],
)
def test_a_restart_leaves_a_transaction_the_rest_of_its_time(away_ms: int, left_ms: int) -> None:
    stage, _ = ongoing()
    stage.now = Now(stage.now.wall_ms + away_ms, 77)  # the wall clock may even have gone back
    stage.restart()
    assert stage.timers == {ID: 77 + left_ms}
    stage.pass_time(left_ms)
    assert stage.known.state is State.PREPARE_ABORT


@pytest.mark.parametrize("committed", [True, False])
def test_a_restart_brings_a_decided_transaction_to_its_end(committed: bool) -> None:
    stage, producer = ongoing()
    stage.end(committed)
    stage.restart()
    (ending,) = stage.endings
    assert ending == (ID, producer, committed, frozenset({P0}), False)
    stage.settle()
    assert stage.known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


def test_fences_survive_a_restart() -> None:
    stage = Stage()
    zombie = stage.initialized()
    present = stage.initialized()
    stage.restart()
    assert stage.add(P0, producer=zombie).error is ErrorCode.PRODUCER_FENCED
    assert not stage.add(P0, producer=present).error


def test_ids_that_nobody_uses_are_forgotten() -> None:
    stage = Stage(TransactionSettings(id_expiration_ms=1_000))
    stage.initialized()
    assert list(stage.coordinator.expire(stage.now)) == []
    stage.pass_time(1_000)
    (result,) = stage.coordinator.expire(stage.now)
    assert result.notes == [(ID, Note.EXPIRED)]
    stage.carry_out(result)
    assert ID not in stage.coordinator.transactions
    stage.restart()
    assert ID not in stage.coordinator.transactions


def test_an_open_transaction_is_never_forgotten() -> None:
    stage = Stage(TransactionSettings(id_expiration_ms=1_000))
    stage.initialized()
    stage.add(P0)
    stage.now = Now(stage.now.wall_ms + 1_000_000, 0)
    assert list(stage.coordinator.expire(stage.now)) == []
    stage.end(True)
    stage.now = Now(stage.now.wall_ms + 1_000_000, 0)
    assert list(stage.coordinator.expire(stage.now)) == []
    stage.settle()
    stage.now = Now(stage.now.wall_ms + 1_000_000, 0)
    assert len(list(stage.coordinator.expire(stage.now))) == 1
