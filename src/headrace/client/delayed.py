"""Delayed messages on the wire: the topic and headers that the delay service reads.

Any Kafka client can write them; this module writes them for our producer and reads them for the
service.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.client.clock import Clock, SystemClock
from headrace.client.message import ID_HEADER
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.client.settings import ClientSettings

DELAY_TOPIC = "headrace.delay"
TARGET_HEADER = "headrace-target"
AT_HEADER = "headrace-deliver-at"
DELAY_HEADER = "headrace-delay"
CANCEL_HEADER = "headrace-cancel"
COMMAND_HEADERS = frozenset((TARGET_HEADER, AT_HEADER, DELAY_HEADER, CANCEL_HEADER))

# The end of the year 9999.
AT_MS_MAX = 253_402_300_799_999
TOPIC_CHARS_MAX = 249
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")

After = str | int | timedelta
At = int | datetime

HeaderPairs = list[tuple[str, bytes | str | None]]
HeadersArgument = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


def delayed_headers(
    topic: str, headers: HeadersArgument | None, after: After | None, at: At | None
) -> tuple[str, HeaderPairs]:
    """The id and all headers of a delayed message; ValueError if the arguments are invalid."""
    pairs = as_pairs(headers)
    for name, _ in pairs:
        if name in COMMAND_HEADERS:
            raise ValueError(f"the header {name} is set by after= and at=")
    id = next((value for name, value in reversed(pairs) if name == ID_HEADER), None)
    if not id:
        id = uuid.uuid4().hex
        pairs.append((ID_HEADER, id))
    pairs.append((TARGET_HEADER, topic))
    when = when_header(after, at)
    if when is None:
        raise ValueError("a delayed message needs after= or at=")
    pairs.append(when)
    return id.decode() if isinstance(id, bytes) else id, pairs


def cancel_headers(id: str) -> HeaderPairs:
    """The headers of a record that cancels a delayed message."""
    return [(ID_HEADER, id), (CANCEL_HEADER, id)]


class DelayCommands:
    """Turns a producer's delayed messages into commands for the delay service."""

    def __init__(self, settings: ClientSettings, partitions: Callable[[str], int]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._has_topic = False

    def command(
        self,
        topic: str,
        headers: HeadersArgument | None,
        partition: int | None,
        after: After | None,
        at: At | None,
    ) -> tuple[str, HeaderPairs, int]:
        """Topic, headers and partition of the command; creates the topic if it is missing."""
        if partition is not None:
            raise ValueError("the partition of a delayed message is chosen when it is delivered")
        id, pairs = delayed_headers(topic, headers, after, at)
        return DELAY_TOPIC, pairs, self.partition(id)

    def partition(self, id: str) -> int:
        """The partition for all commands of an id, so that they keep their order."""
        if not self._has_topic:
            from headrace.client.admin.topics import (
                admin_client,
                commands_topic,
                make_topics,
            )
            from headrace.client.settings import common_settings

            needed = commands_topic(DELAY_TOPIC).unless_there
            make_topics(admin_client(common_settings(self._settings)), [needed])
            self._has_topic = True
        return zlib.crc32(id.encode()) % self._partitions(DELAY_TOPIC)


def when_header(after: After | None, at: At | None) -> tuple[str, str] | None:
    """The header for `after` or `at`; None if neither is given, ValueError if both are."""
    if after is not None and at is not None:
        raise ValueError("give after= or at=, not both")
    if after is not None:
        return DELAY_HEADER, f"{after_ms(after)}ms"
    return None if at is None else (AT_HEADER, str(at_ms(at)))


def deliver_at_ms(now_ms: int, after: After | None, at: At | None) -> int | None:
    """The time for `after` or `at`; None if neither is given, ValueError if both are."""
    if after is not None and at is not None:
        raise ValueError("give after= or at=, not both")
    if after is not None:
        return now_ms + after_ms(after)
    return None if at is None else at_ms(at)


def by_clock(clock: Clock, after: After | None, at: At | None) -> tuple[After | None, At | None]:
    """`after` and `at` for a producer: a delay counts from the append, by the brokers' clock.

    The brokers do not have a test's clock, so with that one the time is fixed here.
    """
    if isinstance(clock, SystemClock):
        return after, at
    return None, deliver_at_ms(clock.now_ms(), after, at)


def after_ms(after: After) -> int:
    """A delay in milliseconds; ValueError if it is not valid."""
    ms = round(after.total_seconds() * 1000) if isinstance(after, timedelta) else duration_ms(after)
    if ms < 0:
        raise ValueError(f"after={after!r} is in the past")
    return ms


def at_ms(at: At) -> int:
    """A time in milliseconds since 1970; ValueError if it is not valid."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"at={at!r} has no time zone; write at=datetime(..., tzinfo=UTC)")
        return round(at.timestamp() * 1000)
    return at


def as_pairs(headers: HeadersArgument | None) -> HeaderPairs:
    """Headers as a new list of pairs."""
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def read_target(raw: bytes | None) -> str:
    """The topic to deliver to; ValueError if it is missing or cannot be one."""
    if not raw:
        raise ValueError(f"the header {TARGET_HEADER} is missing: it names the topic to deliver to")
    target = raw.decode("utf-8", "replace")
    if len(target) > TOPIC_CHARS_MAX or not _TOPIC_NAME.fullmatch(target) or target in (".", ".."):
        raise ValueError(f"{TARGET_HEADER} {target[:TOPIC_CHARS_MAX]!r} is not a valid topic name")
    if target.startswith("__") or (target.startswith("headrace.") and target.endswith(".state")):
        raise ValueError(f"{TARGET_HEADER} {target!r} is an internal topic")
    return target


def read_due_ms(headers: Mapping[str, bytes | None], appended_ms: int) -> int:
    """When to deliver, by the headers and the time of the record; ValueError if they are wrong."""
    if (AT_HEADER in headers) == (DELAY_HEADER in headers):
        raise ValueError(f"exactly one of the headers {AT_HEADER} and {DELAY_HEADER} is needed")
    if AT_HEADER in headers:
        text = _text(headers[AT_HEADER])
        if not text.isascii() or not text.isdecimal() or len(text) > len(str(AT_MS_MAX)):
            raise ValueError(f"{AT_HEADER} {text[:40]!r} is not a time in milliseconds since 1970")
        due_ms = int(text)
    else:
        try:
            due_ms = appended_ms + duration_ms(_text(headers[DELAY_HEADER])[:64])
        except ValueError as error:
            raise ValueError(f"{DELAY_HEADER}: {error}") from None
    if due_ms > AT_MS_MAX:
        raise ValueError("the time of delivery is after the year 9999")
    return due_ms


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
