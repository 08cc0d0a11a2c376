"""EndTxn: every state, both outcomes, clients of before and since KIP-890's second part."""

from __future__ import annotations

from itertools import product

import pytest
from tests.coordinator.transactions.harness import ID, P0, P1, V1, V2, Harness

from headrace.coordinator.transactions.coordinator import EPOCH_MAX
from headrace.coordinator.transactions.effects import Note, Producer
from headrace.coordinator.transactions.records import TransactionChange
from headrace.coordinator.transactions.states import SETTLING, State
from headrace.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS

COMMIT, ABORT = True, False


def at(state: State, version: int) -> tuple[Harness, Producer, Producer]:
    """A transaction in a state, who began it, and who that client is now."""
    harness = Harness()
    began = present = harness.initialized()
    if state is not State.EMPTY:
        harness.add(P0, version=version)
    if state not in (State.EMPTY, State.ONGOING):
        committed = state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        present = harness.end(committed, version=version).producer
        if state not in SETTLING:
            harness.settle()
    assert harness.known.state is state
    return harness, began, present


# The answer to a first request, and to one that repeats it.
ANSWERS_V1 = {
    (State.EMPTY, COMMIT): INVALID,
    (State.EMPTY, ABORT): INVALID,
    (State.ONGOING, COMMIT): NONE,
    (State.ONGOING, ABORT): NONE,
    # The same epoch may mean a repeated request: it waits, or was carried out.
    (State.PREPARE_COMMIT, COMMIT): CONCURRENT,
    (State.PREPARE_COMMIT, ABORT): INVALID,
    (State.PREPARE_ABORT, COMMIT): INVALID,
    (State.PREPARE_ABORT, ABORT): CONCURRENT,
    (State.COMPLETE_COMMIT, COMMIT): NONE,
    (State.COMPLETE_COMMIT, ABORT): INVALID,
    (State.COMPLETE_ABORT, COMMIT): INVALID,
    (State.COMPLETE_ABORT, ABORT): NONE,
}
ANSWERS_V2 = {
    (State.EMPTY, COMMIT): INVALID,
    (State.EMPTY, ABORT): NONE,
    (State.ONGOING, COMMIT): NONE,
    (State.ONGOING, ABORT): NONE,
    (State.PREPARE_COMMIT, COMMIT): CONCURRENT,
    (State.PREPARE_COMMIT, ABORT): CONCURRENT,
    (State.PREPARE_ABORT, COMMIT): CONCURRENT,
    (State.PREPARE_ABORT, ABORT): CONCURRENT,
    (State.COMPLETE_COMMIT, COMMIT): INVALID,
    (State.COMPLETE_COMMIT, ABORT): NONE,
    (State.COMPLETE_ABORT, COMMIT): INVALID,
    (State.COMPLETE_ABORT, ABORT): NONE,
}
REPEATED_V2 = {
    (State.PREPARE_COMMIT, COMMIT): CONCURRENT,
    (State.PREPARE_COMMIT, ABORT): INVALID,
    (State.PREPARE_ABORT, COMMIT): INVALID,
    (State.PREPARE_ABORT, ABORT): CONCURRENT,
    (State.COMPLETE_COMMIT, COMMIT): NONE,
    (State.COMPLETE_COMMIT, ABORT): INVALID,
    (State.COMPLETE_ABORT, COMMIT): INVALID,
    (State.COMPLETE_ABORT, ABORT): NONE,
}
STATES = [state for state in State if (state, COMMIT) in ANSWERS_V1]


@pytest.mark.parametrize(("state", "committed"), list(product(STATES, (COMMIT, ABORT))))
def test_clients_before_kip_890(state: State, committed: bool) -> None:
    harness, _, present = at(state, V1)
    before = harness.known
    result = harness.end(committed, producer=present)
    assert result.error is ANSWERS_V1[state, committed]
    assert bool(result.records) == (state is State.ONGOING)
    if state is not State.ONGOING:
        assert harness.known == before
    assert harness.known.producer_epoch == present.epoch, "the epoch is the client's own"


@pytest.mark.parametrize(("state", "committed"), list(product(STATES, (COMMIT, ABORT))))
def test_clients_since_kip_890(state: State, committed: bool) -> None:
    harness, _, present = at(state, V2)
    result = harness.end(committed, producer=present, version=V2)
    assert result.error is ANSWERS_V2[state, committed]
    if not result.error:
        assert result.producer == Producer(present.id, present.epoch + 1)
        assert harness.producer == result.producer
        assert harness.known.state in SETTLING
    else:
        assert not result.records


@pytest.mark.parametrize(("state", "committed"), list(REPEATED_V2))
def test_repeated_requests_since_kip_890(state: State, committed: bool) -> None:
    harness, began, present = at(state, V2)
    before = harness.known
    result = harness.end(committed, producer=began, version=V2)
    assert result.error is REPEATED_V2[state, committed]
    assert not result.records
    assert harness.known == before
    if not result.error:
        assert result.producer == present, "the epoch to go on with"


@pytest.mark.parametrize(("state", "version"), list(product(STATES, (V1, V2))))
def test_other_epochs_are_fenced(state: State, version: int) -> None:
    harness, began, _ = at(state, version)
    for epoch in (began.epoch + 2, began.epoch - 1):
        other = Producer(began.id, epoch)
        assert harness.end(COMMIT, producer=other, version=version).error is FENCED


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_an_end_is_final_and_its_markers_go_to_every_partition(
    committed: bool, version: int
) -> None:
    harness = Harness()
    began = harness.initialized()
    harness.add(P0, version=version)
    harness.add(P1, version=version)
    result = harness.end(committed, version=version)
    assert result.notes == [(ID, Note.COMMITTED if committed else Note.ABORTED)]
    (ending,) = result.endings
    epoch = began.epoch + (version == V2)
    own_epoch = version == V2
    assert ending == (ID, Producer(began.id, epoch), committed, frozenset({P0, P1}), own_epoch)
    assert harness.add(P0).error is CONCURRENT
    assert harness.coordinator.verify(ID, harness.producer, P0) is CONCURRENT
    harness.settle()
    assert harness.known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert not harness.known.partitions
    assert not harness.add(P0).error


def test_markers_that_are_told_of_twice_end_the_transaction_once() -> None:
    harness, _, _ = at(State.PREPARE_COMMIT, V1)
    (ending,) = harness.endings
    harness.settle()
    length = len(harness.log)
    assert not harness.coordinator.settled(ending, harness.now).records
    harness.add(P0)
    harness.end(COMMIT)
    assert harness.coordinator.settled(ending, harness.now).records, (
        "the same partitions, the same end"
    )
    assert len(harness.log) == length + 2


class TestExhaustion:
    """KIP-890 spends an epoch a transaction: a producer id lasts for 32,766 of them."""

    def exhausted(self) -> tuple[Harness, Producer]:
        harness = Harness()
        harness.initialized()
        known = harness.known._replace(producer_epoch=EPOCH_MAX - 1)
        harness.coordinator.replay(TransactionChange(ID, known))
        harness.add(P0, version=V2)
        return harness, harness.producer

    def test_the_client_goes_on_with_a_new_id(self) -> None:
        harness, old = self.exhausted()
        result = harness.end(COMMIT, version=V2)
        new = Producer(harness.next_producer_id, 0)
        assert result.producer == new
        (ending,) = harness.endings
        assert ending.producer == Producer(old.id, EPOCH_MAX), "markers fence the old id"
        assert harness.add(P0, producer=new, version=V2).error is CONCURRENT
        assert harness.end(COMMIT, producer=old, version=V2).error is CONCURRENT
        harness.settle()
        assert harness.producer == new
        assert harness.end(COMMIT, producer=old, version=V2).producer == new
        assert not harness.add(P0, producer=new, version=V2).error

    def test_without_a_new_id_at_hand_the_client_comes_again(self) -> None:
        harness, _ = self.exhausted()
        result = harness.end(COMMIT, version=V2, fresh=False)
        assert result.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.known.state is State.ONGOING

    def test_the_new_id_survives_a_restart_in_between(self) -> None:
        harness, _ = self.exhausted()
        new = harness.end(COMMIT, version=V2).producer
        harness.restart()
        harness.settle()
        assert harness.producer == new

    def test_who_timed_out_at_the_last_epoch_cannot_go_on(self) -> None:
        harness, old = self.exhausted()
        harness.pass_time(harness.known.timeout_ms)
        harness.settle()
        assert harness.known.producer_epoch == EPOCH_MAX
        assert harness.end(ABORT, producer=old, version=V2).error is FENCED
        assert harness.initialized().epoch == 0
