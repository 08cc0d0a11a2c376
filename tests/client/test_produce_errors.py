"""What a failed send means, for every room that sends."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import BufferFull, RateLimited, RecordTooLarge, TopicSwitchedOff
from headrace.client.produce_errors import (
    ProduceError,
    is_passing,
    is_permanent,
    is_record_fault,
    is_topic_fault,
    is_unknown_partition,
)

RECORD, TOPIC, RIGHT, PASSING = "record", "topic", "right", "passing"

MEANINGS: list[tuple[ProduceError, str]] = [
    (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), RECORD),
    (KafkaError(KafkaError.RECORD_LIST_TOO_LARGE), RECORD),
    (KafkaError(KafkaError.INVALID_MSG), RECORD),
    (KafkaError(KafkaError.INVALID_RECORD), RECORD),
    (KafkaError(KafkaError.INVALID_TIMESTAMP), RECORD),
    (KafkaError(KafkaError._INVALID_ARG), RECORD),
    (RecordTooLarge("too large"), RECORD),
    (ValueError("not a header"), RECORD),
    (TypeError("not bytes"), RECORD),
    (KafkaError(KafkaError.TOPIC_EXCEPTION), TOPIC),
    (KafkaError(KafkaError.POLICY_VIOLATION), TOPIC),
    (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), RIGHT),
    (KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), PASSING),
    (KafkaError(KafkaError._MSG_TIMED_OUT), PASSING),
    (BufferFull("full"), PASSING),
    (TopicSwitchedOff("orders"), PASSING),
    (RateLimited("enough"), PASSING),
    (ConnectionError("gone"), PASSING),
    (None, PASSING),
]


@pytest.mark.parametrize(("error", "meaning"), MEANINGS)
def test_a_failure_has_one_meaning(error: ProduceError, meaning: str) -> None:
    assert is_record_fault(error) == (meaning == RECORD)
    assert is_topic_fault(error) == (meaning in (TOPIC, RIGHT))
    assert is_passing(error) == (meaning == PASSING)


@pytest.mark.parametrize(("error", "meaning"), MEANINGS)
def test_a_missing_right_is_not_permanent(error: ProduceError, meaning: str) -> None:
    assert is_permanent(error) == (meaning in (RECORD, TOPIC))


def test_a_delivery_report_and_an_exception_mean_the_same() -> None:
    error = KafkaError(KafkaError.INVALID_RECORD)
    assert is_record_fault(error)
    assert is_record_fault(KafkaException(error))


def test_an_unknown_partition_is_passing() -> None:
    error = KafkaError(KafkaError._UNKNOWN_PARTITION)
    assert is_unknown_partition(error)
    assert is_passing(error)
