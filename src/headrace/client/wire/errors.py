"""Error codes of responses, as exceptions."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode, KafkaError

_CODES = {int(code): code for code in ErrorCode}


def refused(code: int, message: str | None = None) -> KafkaError:
    """The exception for an error code; a newer broker may send codes that are unknown here."""
    if code in _CODES:
        return KafkaError(_CODES[code], message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {code}")
