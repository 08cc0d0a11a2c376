"""A consumer whose library hands out errors and refusals, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.client import Consumer
from headrace.client.errors import CommitFailed

DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
T0, T1 = ("t", 0), ("t", 1)


class Record:
    """A record, or an error in the place of one."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset = offset
        self._error = None if code is None else KafkaError(code)

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Library:
    """What stands for the library: its batches, one for each call."""

    def __init__(self, *batches: list[Record]) -> None:
        self.batches = list(batches)

    def consume(self, _count: int, _timeout_s: float) -> list[Record]:
        return self.batches.pop(0) if self.batches else []

    def position(self, _partitions: list[Any]) -> list[Any]:
        return [TopicPartition(*T0, 100)]


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1"}, group="g")
    library = consumer._client
    yield consumer
    consumer._client = consumer._poller._client = library
    # Nobody is there to commit to.
    consumer._consumed = None
    consumer._assignment.owned.clear()
    consumer.close()


def offsets(records: list[Any]) -> list[int]:
    return [record.offset() for record in records]


def test_an_error_costs_no_record_of_its_batch(consumer: Consumer) -> None:
    batch = [Record(1), Record(2), Record(-1, DENIED), Record(3), Record(-1, DENIED), Record(4)]
    consumer._client = consumer._poller._client = Library(batch, [Record(5)])
    with pytest.raises(KafkaException):
        consumer.poll_batch(10, 0)
    # What was not returned is not counted as read.
    assert consumer.position([T0]) == {T0: 1}
    with pytest.raises(KafkaException):
        consumer.poll_batch(10, 0)
    assert offsets(consumer.poll_batch(3, 0)) == [1, 2, 3]
    assert consumer.position([T0]) == {T0: 4}
    assert offsets(consumer.poll_batch(3, 0)) == [4]
    assert offsets(consumer.poll_batch(3, 0)) == [5]


def test_a_commit_that_failed_is_made_again_only_for_what_is_still_owned(
    consumer: Consumer,
) -> None:
    consumed = consumer._consumed
    assert consumed is not None
    consumer._assignment.owned[T1] = 0
    failed = [TopicPartition(*T0, 100), TopicPartition(*T1, 200)]
    consumer._on_auto_commit(CommitFailed("the group rebalances"), failed)
    assert consumed.take() == {T1: 200}
