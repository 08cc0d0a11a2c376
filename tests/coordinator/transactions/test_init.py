"""InitProducerId: who gets which epoch, and who is fenced by it."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.harness import ID, P0, V2, Harness

from headrace.coordinator.transactions.coordinator import EPOCH_MAX
from headrace.coordinator.transactions.effects import Note, Producer
from headrace.coordinator.transactions.records import NO_PRODUCER_ID, TransactionChange
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def with_epoch(harness: Harness, epoch: int, state: State = State.EMPTY) -> Producer:
    """A transactional id that has come so far."""
    harness.initialized()
    known = harness.known._replace(producer_epoch=epoch, state=state)
    harness.coordinator.replay(TransactionChange(ID, known))
    return harness.producer


def test_a_new_id_starts_at_epoch_zero() -> None:
    harness = Harness()
    assert harness.init().producer == Producer(1_001, 0)
    assert harness.known.state is State.EMPTY


def test_the_producer_id_stays_and_the_epoch_rises() -> None:
    harness = Harness()
    first = harness.initialized()
    assert harness.initialized() == Producer(first.id, first.epoch + 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_above_the_maximum_or_of_nothing_is_refused(timeout_ms: int) -> None:
    harness = Harness()
    assert harness.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not harness.log


def test_an_empty_id_is_refused() -> None:
    coordinator = Harness().coordinator
    assert coordinator.init("", 1, None, 5, Harness().now).error is ErrorCode.INVALID_REQUEST


def test_an_open_transaction_is_aborted_before_the_next_producer_begins() -> None:
    harness = Harness()
    zombie = harness.initialized()
    harness.add(P0)
    result = harness.init()
    assert result.error is CONCURRENT
    assert harness.known.state is State.PREPARE_ABORT
    (ending,) = harness.endings
    assert ending == (ID, Producer(zombie.id, zombie.epoch + 1), False, frozenset({P0}), False)
    assert harness.init().error is CONCURRENT, "its markers are not written yet"
    harness.settle()
    assert harness.init().producer == Producer(zombie.id, zombie.epoch + 2)


def test_who_had_the_id_before_is_fenced_everywhere() -> None:
    harness = Harness()
    zombie = harness.initialized()
    harness.initialized()
    for result in (
        harness.add(P0, producer=zombie),
        harness.end(True, producer=zombie),
        harness.end(False, producer=zombie, version=V2),
        harness.init(zombie),
    ):
        assert result.error is FENCED
        assert result.notes == [(ID, Note.FENCED)]
        assert not result.records
    assert harness.coordinator.verify(ID, zombie, P0) is FENCED


def test_a_stranger_is_told_that_the_id_is_not_its_own() -> None:
    harness = Harness()
    harness.initialized()
    stranger = Producer(77, 0)
    assert harness.add(P0, producer=stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.end(True, producer=stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.init(stranger).error is FENCED


class TestGoingOn:
    """KIP-360: a producer that had an error asks for the next epoch of its own."""

    def test_the_present_producer_gets_the_next_epoch(self) -> None:
        harness = Harness()
        present = harness.initialized()
        assert harness.init(present).producer == Producer(present.id, present.epoch + 1)

    def test_a_repeated_request_gets_the_same_answer(self) -> None:
        harness = Harness()
        present = harness.initialized()
        answer = harness.init(present).producer
        assert harness.init(present).producer == answer
        assert harness.known.producer_epoch == answer.epoch

    def test_an_older_one_is_fenced_and_aborts_nothing(self) -> None:
        harness = Harness()
        zombie = harness.initialized()
        harness.initialized()
        harness.add(P0)
        assert harness.init(zombie).error is FENCED
        assert harness.known.state is State.ONGOING

    def test_with_its_own_transaction_open_it_may_come_back_after_the_abort(self) -> None:
        harness = Harness()
        present = harness.initialized()
        harness.add(P0)
        assert harness.init(present).error is CONCURRENT
        harness.settle()
        assert harness.init(present).producer == Producer(present.id, present.epoch + 1)

    def test_after_another_has_come_it_is_fenced(self) -> None:
        harness = Harness()
        present = harness.initialized()
        harness.init(present)
        harness.initialized()
        assert harness.init(present).error is FENCED

    def test_an_id_that_was_forgotten_is_given_anew(self) -> None:
        harness = Harness()
        assert harness.init(Producer(77, 5)).producer == Producer(1_001, 0)


class TestExhaustion:
    """When the epochs of a producer id are used up."""

    def test_the_producer_gets_a_new_id(self) -> None:
        harness = Harness()
        old = with_epoch(harness, EPOCH_MAX - 1)
        answer = harness.init().producer
        assert answer == Producer(harness.next_producer_id, 0)
        assert harness.known.previous_producer_id == old.id

    def test_a_repeated_request_gets_the_same_new_id(self) -> None:
        harness = Harness()
        old = with_epoch(harness, EPOCH_MAX - 1)
        answer = harness.init(old).producer
        assert answer.id != old.id
        assert harness.init(old).producer == answer

    def test_without_a_new_id_at_hand_the_client_comes_again(self) -> None:
        harness = Harness()
        with_epoch(harness, EPOCH_MAX - 1)
        assert harness.init(fresh=False).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.coordinator.needs_producer_id(ID)
        assert harness.coordinator.needs_producer_id("never seen")

    def test_the_last_epoch_is_kept_for_fencing(self) -> None:
        harness = Harness()
        with_epoch(harness, EPOCH_MAX - 1)
        harness.add(P0)
        assert harness.init().error is CONCURRENT
        assert harness.known.producer_epoch == EPOCH_MAX
        harness.settle()
        answer = harness.init().producer
        assert answer.epoch == 0

    def test_ids_are_asked_for_before_they_are_needed(self) -> None:
        harness = Harness()
        with_epoch(harness, 5)
        assert not harness.coordinator.needs_producer_id(ID)
        assert harness.init(fresh=False).producer.id != NO_PRODUCER_ID
