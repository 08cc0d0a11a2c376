"""Dead letters as records: the name of their topic, and the headers with the failure."""

from __future__ import annotations

from headrace.client.message import ID_HEADER, Headers

SUFFIX = ".dlq"
TOPIC_CHARS_MAX = 249

ERROR_HEADER = "headrace-error"
FINGERPRINT_HEADER = "headrace-fingerprint"
ATTEMPTS_HEADER = "headrace-attempts"
SOURCE_HEADER = "headrace-source"
HANDLER_HEADER = "headrace-handler"
VERSION_HEADER = "headrace-version"
TRACEBACK_HEADER = "headrace-traceback"
# The parts of the message or failure that were left out, since the topic refused them.
LEFT_OUT_HEADER = "headrace-left-out"
# How many attempts a resent message has had.
RESENT_HEADER = "headrace-resent"
# Headers of a dead letter that are dropped when the message is sent again.
_OF_A_LETTER = frozenset(
    (
        ID_HEADER, ERROR_HEADER, FINGERPRINT_HEADER, ATTEMPTS_HEADER, SOURCE_HEADER,
        HANDLER_HEADER, VERSION_HEADER, TRACEBACK_HEADER, LEFT_OUT_HEADER, RESENT_HEADER,
    )
)  # fmt: skip


def topic_of(source: str) -> str:
    """The topic for the dead letters of a topic."""
    return source[: TOPIC_CHARS_MAX - len(SUFFIX)] + SUFFIX


def without_ours(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that the message's sender has set."""
    return [(name, value) for name, value in headers if name not in _OF_A_LETTER]
