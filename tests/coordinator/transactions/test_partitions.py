"""Partitions that join a transaction, and what may be written to them."""

from __future__ import annotations

import pytest
from tests.coordinator.transactions.stage import ID, P0, P1, TIMEOUT_MS, V1, V2, Stage

from headrace.coordinator.transactions.effects import Producer
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode


def test_the_first_partition_begins_the_transaction() -> None:
    stage = Stage()
    stage.initialized()
    result = stage.add(P0)
    assert not result.error
    assert stage.known.state is State.ONGOING
    assert stage.known.start_ms == stage.now.wall_ms
    assert stage.timers == {ID: TIMEOUT_MS}


def test_more_partitions_join_and_the_clock_goes_on() -> None:
    stage = Stage()
    stage.initialized()
    stage.add(P0)
    start_ms = stage.known.start_ms
    stage.pass_time(100)
    stage.add(P1)
    assert stage.known.partitions == {P0, P1}
    assert stage.known.start_ms == start_ms
    assert stage.timers == {ID: TIMEOUT_MS}


def test_what_is_there_already_costs_no_record() -> None:
    stage = Stage()
    stage.initialized()
    stage.add(P0, P1)
    assert not stage.add(P1).records


def test_the_next_transaction_begins_with_nothing() -> None:
    stage = Stage()
    stage.initialized()
    stage.add(P0)
    stage.end(True)
    stage.settle()
    stage.add(P1)
    assert stage.known.partitions == {P1}


def test_only_what_was_added_may_be_written_to() -> None:
    stage = Stage()
    producer = stage.initialized()
    verify = stage.coordinator.verify
    assert verify(ID, producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    stage.add(P0)
    assert verify(ID, producer, P0) is ErrorCode.NONE
    assert verify(ID, producer, P1) is ErrorCode.TRANSACTION_ABORTABLE
    stage.end(True)
    stage.settle()
    assert verify(ID, producer, P0) is ErrorCode.TRANSACTION_ABORTABLE, "a late record"


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("", ErrorCode.INVALID_REQUEST), ("unknown", ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
)
def test_ids_that_nobody_initialized_are_refused(transactional_id: str, error: ErrorCode) -> None:
    stage = Stage()
    producer, now = Producer(1, 0), stage.now
    assert stage.coordinator.add(transactional_id, producer, [P0], V2, now).error is error
    assert stage.coordinator.verify(transactional_id, producer, P0) is error
    assert stage.coordinator.end(transactional_id, producer, True, V2, 5, now).error is error


@pytest.mark.parametrize("version", [V1, V2])
def test_open_transactions_are_known_by_partition_and_producer(version: int) -> None:
    stage = Stage()
    producer = stage.initialized()
    assert list(stage.coordinator.open_in()) == []
    stage.add(P0, version=version)
    assert list(stage.coordinator.open_in()) == [(P0, producer)]
    stage.end(True, version=version)
    known = list(stage.coordinator.open_in())
    assert (P0, producer) in known, "until its marker is written"
    later = Producer(producer.id, producer.epoch + 1)
    assert (P0, later) not in known, "a later transaction, which is not known here"
    stage.settle()
    assert list(stage.coordinator.open_in()) == []
