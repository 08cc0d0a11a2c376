"""Partitions that join a transaction, and what may be written to them."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.harness import ID, P0, P1, TIMEOUT_MS, V1, V2, Harness

from headrace.coordinator.transactions.effects import Producer
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode


def test_the_first_partition_begins_the_transaction() -> None:
    harness = Harness()
    harness.initialized()
    result = harness.add(P0)
    assert not result.error
    assert harness.known.state is State.ONGOING
    assert harness.known.start_ms == harness.now.wall_ms
    assert harness.timers == {ID: TIMEOUT_MS}


def test_more_partitions_join_and_the_clock_goes_on() -> None:
    harness = Harness()
    harness.initialized()
    harness.add(P0)
    start_ms = harness.known.start_ms
    harness.pass_time(100)
    harness.add(P1)
    assert harness.known.partitions == {P0, P1}
    assert harness.known.start_ms == start_ms
    assert harness.timers == {ID: TIMEOUT_MS}


def test_what_is_there_already_costs_no_record() -> None:
    harness = Harness()
    harness.initialized()
    harness.add(P0, P1)
    assert not harness.add(P1).records


def test_the_next_transaction_begins_with_nothing() -> None:
    harness = Harness()
    harness.initialized()
    harness.add(P0)
    harness.end(True)
    harness.settle()
    harness.add(P1)
    assert harness.known.partitions == {P1}


def test_only_what_was_added_may_be_written_to() -> None:
    harness = Harness()
    producer = harness.initialized()
    verify = harness.coordinator.verify
    assert verify(ID, producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    harness.add(P0)
    assert verify(ID, producer, P0) is ErrorCode.NONE
    assert verify(ID, producer, P1) is ErrorCode.TRANSACTION_ABORTABLE
    harness.end(True)
    harness.settle()
    assert verify(ID, producer, P0) is ErrorCode.TRANSACTION_ABORTABLE, "a late record"


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("", ErrorCode.INVALID_REQUEST), ("unknown", ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
)
def test_ids_that_nobody_initialized_are_refused(transactional_id: str, error: ErrorCode) -> None:
    harness = Harness()
    producer, now = Producer(1, 0), harness.now
    assert harness.coordinator.add(transactional_id, producer, [P0], V2, now).error is error
    assert harness.coordinator.verify(transactional_id, producer, P0) is error
    assert harness.coordinator.end(transactional_id, producer, True, V2, 5, now).error is error


@pytest.mark.parametrize("version", [V1, V2])
def test_open_transactions_are_known_by_partition_and_producer(version: int) -> None:
    harness = Harness()
    producer = harness.initialized()
    assert list(harness.coordinator.open_in()) == []
    harness.add(P0, version=version)
    assert list(harness.coordinator.open_in()) == [(P0, producer)]
    harness.end(True, version=version)
    known = list(harness.coordinator.open_in())
    assert (P0, producer) in known, "until its marker is written"
    later = Producer(producer.id, producer.epoch + 1)
    assert (P0, later) not in known, "a later transaction, which is not known here"
    harness.settle()
    assert list(harness.coordinator.open_in()) == []
