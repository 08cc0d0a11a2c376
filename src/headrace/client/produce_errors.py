"""What a failed send means: the record is at fault, its topic is, or the failure is passing.

Every room that sends asks here, so that a refusal means the same to all of them.
"""

from __future__ import annotations

from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException

# An error as a delivery report has it, or the exception that `send` raised.
ProduceError: TypeAlias = KafkaError | BaseException | None

# The client or the broker refuses the record itself, or another one of its batch.
_RECORD_FAULTS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._INVALID_ARG,
    }
)
# The topic takes no record from any client.
_INVALID_TOPIC = frozenset({KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION})
_TOPIC_FAULTS = _INVALID_TOPIC | {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def is_record_fault(error: ProduceError) -> bool:
    """Whether the record is refused every time, or was in a batch with one that is."""
    if isinstance(error, ValueError | TypeError):
        return True
    return error_code(error) in _RECORD_FAULTS


def is_topic_fault(error: ProduceError) -> bool:
    """Whether the topic refuses every record that this client sends."""
    return error_code(error) in _TOPIC_FAULTS


def is_passing(error: ProduceError) -> bool:
    """Whether neither the record nor its topic is at fault, so that a retry may succeed."""
    return not is_record_fault(error) and not is_topic_fault(error)


def is_permanent(error: ProduceError) -> bool:
    """Whether every retry of this record fails the same way.

    A missing right is not permanent: an operator can grant it without touching the record.
    """
    return is_record_fault(error) or error_code(error) in _INVALID_TOPIC


def is_unknown_partition(error: ProduceError) -> bool:
    """Whether the topic has no such partition."""
    return bool(error_code(error) == KafkaError._UNKNOWN_PARTITION)


def error_code(error: ProduceError) -> int | None:
    """The library's code of an error; None for an exception that carries none."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    return int(error.code()) if isinstance(error, KafkaError) else None
