"""InitProducerId: who gets which epoch, and who is fenced by it."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.stage import ID, P0, V2, Stage

from headrace.coordinator.transactions.coordinator import EPOCH_MAX
from headrace.coordinator.transactions.effects import Note, Producer
from headrace.coordinator.transactions.records import NO_PRODUCER_ID, TransactionChange
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def with_epoch(stage: Stage, epoch: int, state: State = State.EMPTY) -> Producer:
    """A transactional id that has come so far."""
    stage.initialized()
    known = stage.known._replace(producer_epoch=epoch, state=state)
    stage.coordinator.replay(TransactionChange(ID, known))
    return stage.producer


def test_a_new_id_starts_at_epoch_zero() -> None:
    stage = Stage()
    assert stage.init().producer == Producer(1_001, 0)
    assert stage.known.state is State.EMPTY


def test_the_producer_id_stays_and_the_epoch_rises() -> None:
    stage = Stage()
    first = stage.initialized()
    assert stage.initialized() == Producer(first.id, first.epoch + 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_above_the_maximum_or_of_nothing_is_refused(timeout_ms: int) -> None:
    stage = Stage()
    assert stage.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not stage.log


def test_an_empty_id_is_refused() -> None:
    coordinator = Stage().coordinator
    assert coordinator.init("", 1, None, 5, Stage().now).error is ErrorCode.INVALID_REQUEST


def test_an_open_transaction_is_aborted_before_the_next_producer_begins() -> None:
    stage = Stage()
    zombie = stage.initialized()
    stage.add(P0)
    result = stage.init()
    assert result.error is CONCURRENT
    assert stage.known.state is State.PREPARE_ABORT
    (ending,) = stage.endings
    assert ending == (ID, Producer(zombie.id, zombie.epoch + 1), False, frozenset({P0}), False)
    assert stage.init().error is CONCURRENT, "its markers are not written yet"
    stage.settle()
    assert stage.init().producer == Producer(zombie.id, zombie.epoch + 2)


def test_who_had_the_id_before_is_fenced_everywhere() -> None:
    stage = Stage()
    zombie = stage.initialized()
    stage.initialized()
    for result in (
        stage.add(P0, producer=zombie),
        stage.end(True, producer=zombie),
        stage.end(False, producer=zombie, version=V2),
        stage.init(zombie),
    ):
        assert result.error is FENCED
        assert result.notes == [(ID, Note.FENCED)]
        assert not result.records
    assert stage.coordinator.verify(ID, zombie, P0) is FENCED


def test_a_stranger_is_told_that_the_id_is_not_its_own() -> None:
    stage = Stage()
    stage.initialized()
    stranger = Producer(77, 0)
    assert stage.add(P0, producer=stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stage.end(True, producer=stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stage.init(stranger).error is FENCED


class TestGoingOn:
    """KIP-360: a producer that had an error asks for the next epoch of its own."""

    def test_the_present_producer_gets_the_next_epoch(self) -> None:
        stage = Stage()
        present = stage.initialized()
        assert stage.init(present).producer == Producer(present.id, present.epoch + 1)

    def test_a_repeated_request_gets_the_same_answer(self) -> None:
        stage = Stage()
        present = stage.initialized()
        answer = stage.init(present).producer
        assert stage.init(present).producer == answer
        assert stage.known.producer_epoch == answer.epoch

    def test_an_older_one_is_fenced_and_aborts_nothing(self) -> None:
        stage = Stage()
        zombie = stage.initialized()
        stage.initialized()
        stage.add(P0)
        assert stage.init(zombie).error is FENCED
        assert stage.known.state is State.ONGOING

    def test_with_its_own_transaction_open_it_may_come_back_after_the_abort(self) -> None:
        stage = Stage()
        present = stage.initialized()
        stage.add(P0)
        assert stage.init(present).error is CONCURRENT
        stage.settle()
        assert stage.init(present).producer == Producer(present.id, present.epoch + 1)

    def test_after_another_has_come_it_is_fenced(self) -> None:
        stage = Stage()
        present = stage.initialized()
        stage.init(present)
        stage.initialized()
        assert stage.init(present).error is FENCED

    def test_an_id_that_was_forgotten_is_given_anew(self) -> None:
        stage = Stage()
        assert stage.init(Producer(77, 5)).producer == Producer(1_001, 0)


class TestExhaustion:
    """When the epochs of a producer id are used up."""

    def test_the_producer_gets_a_new_id(self) -> None:
        stage = Stage()
        old = with_epoch(stage, EPOCH_MAX - 1)
        answer = stage.init().producer
        assert answer == Producer(stage.next_producer_id, 0)
        assert stage.known.previous_producer_id == old.id

    def test_a_repeated_request_gets_the_same_new_id(self) -> None:
        stage = Stage()
        old = with_epoch(stage, EPOCH_MAX - 1)
        answer = stage.init(old).producer
        assert answer.id != old.id
        assert stage.init(old).producer == answer

    def test_without_a_new_id_at_hand_the_client_comes_again(self) -> None:
        stage = Stage()
        with_epoch(stage, EPOCH_MAX - 1)
        assert stage.init(fresh=False).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.coordinator.needs_producer_id(ID)
        assert stage.coordinator.needs_producer_id("never seen")

    def test_the_last_epoch_is_kept_for_fencing(self) -> None:
        stage = Stage()
        with_epoch(stage, EPOCH_MAX - 1)
        stage.add(P0)
        assert stage.init().error is CONCURRENT
        assert stage.known.producer_epoch == EPOCH_MAX
        stage.settle()
        answer = stage.init().producer
        assert answer.epoch == 0

    def test_ids_are_asked_for_before_they_are_needed(self) -> None:
        stage = Stage()
        with_epoch(stage, 5)
        assert not stage.coordinator.needs_producer_id(ID)
        assert stage.init(fresh=False).producer.id != NO_PRODUCER_ID
