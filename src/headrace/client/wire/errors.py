"""The errors of requests over our own wire."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode, KafkaError

# A partition or its topic does not exist.
GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_CODES = {int(code): code for code in ErrorCode}


def refused(code: int, message: str | None = None) -> KafkaError:
    """The exception for an error code; a newer broker may send codes that are unknown here."""
    if code in _CODES:
        return KafkaError(_CODES[code], message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {code}")


class OffsetOutOfRange(KafkaError):
    """The partition does not hold the offset; `log_start_offset` is -1 if it is unknown."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}/{partition} does not hold offset {offset}"
        )
        self.log_start_offset = log_start_offset
