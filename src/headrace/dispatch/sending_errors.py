"""What a failed send means: whether trying again can help, and whether its partition is there."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

_HOPELESS = frozenset(
    (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD)
)


def is_hopeless(error: Exception | None) -> bool:
    """Whether the brokers will never take this record, however often it is sent."""
    return _code(error) in _HOPELESS


def is_nowhere(error: Exception | None) -> bool:
    """Whether the topic has no such partition."""
    return bool(_code(error) == KafkaError._UNKNOWN_PARTITION)


def _code(error: Exception | None) -> int | None:
    if not isinstance(error, KafkaException):
        return None
    code: int = error.args[0].code()
    return code
