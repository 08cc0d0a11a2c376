"""Sending later: the topic and the headers by which the delay service takes a message."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.client.settings import Settings

TOPIC = "headrace.delay"
ID_HEADER = "headrace-id"
TARGET_HEADER = "headrace-target"
AT_HEADER = "headrace-deliver-at"
DELAY_HEADER = "headrace-delay"
CANCEL_HEADER = "headrace-cancel"

After = str | int | timedelta
At = int | datetime

Pairs = list[tuple[str, bytes | str | None]]
Given = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


def delayed_headers(
    topic: str, headers: Given | None, after: After | None, at: At | None
) -> tuple[str, Pairs]:
    """The id of a delayed message, and all headers that it needs; ValueError on nonsense."""
    pairs = as_pairs(headers)
    for name, _ in pairs:
        if name in (TARGET_HEADER, AT_HEADER, DELAY_HEADER, CANCEL_HEADER):
            raise ValueError(f"the header {name} is set by after= and at=")
    id = next((value for name, value in reversed(pairs) if name == ID_HEADER), None)
    if not id:
        id = uuid.uuid4().hex
        pairs.append((ID_HEADER, id))
    pairs.append((TARGET_HEADER, topic))
    if (after is None) == (at is None):
        raise ValueError("say after= or at=, not both")
    if after is not None:
        pairs.append((DELAY_HEADER, f"{after_ms(after)}ms"))
    elif at is not None:
        pairs.append((AT_HEADER, str(at_ms(at))))
    return id.decode() if isinstance(id, bytes) else id, pairs


class Delaying:
    """Turns what a producer is to send later into a command for the delay service."""

    def __init__(self, settings: Settings, partitions: Callable[[str], int]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._has_topic = False

    def __call__(
        self,
        topic: str,
        headers: Given | None,
        partition: int | None,
        after: After | None,
        at: At | None,
    ) -> tuple[str, Pairs, int]:
        """Topic, headers and partition of the command; makes the topic where it is missing."""
        if partition is not None:
            raise ValueError("the partition of a delayed message is chosen when it is delivered")
        id, pairs = delayed_headers(topic, headers, after, at)
        return TOPIC, pairs, self.partition(id)

    def partition(self, id: str) -> int:
        """Where the commands of an id go, so that they keep their order."""
        if not self._has_topic:
            from headrace.client.admin.topics import (
                admin_client,
                commands_topic,
                make_topics,
            )
            from headrace.client.settings import common_settings

            needed = commands_topic(TOPIC).unless_there
            make_topics(admin_client(common_settings(self._settings)), [needed])
            self._has_topic = True
        return zlib.crc32(id.encode()) % self._partitions(TOPIC)


def cancel_headers(id: str) -> Pairs:
    """The headers of a record that cancels."""
    return [(ID_HEADER, id), (CANCEL_HEADER, id)]


def after_ms(after: After) -> int:
    """A delay in milliseconds; ValueError if it is none."""
    ms = round(after.total_seconds() * 1000) if isinstance(after, timedelta) else duration_ms(after)
    if ms < 0:
        raise ValueError(f"after={after!r} is in the past")
    return ms


def deliver_at_ms(now_ms: int, after: After | None, at: At | None) -> int | None:
    """The time that `after` or `at` names; None if neither of them is there."""
    if after is not None and at is not None:
        raise ValueError("say after= or at=, not both")
    if after is not None:
        return now_ms + after_ms(after)
    return None if at is None else at_ms(at)


def at_ms(at: At) -> int:
    """A time in milliseconds since 1970; ValueError if it is none."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"at={at!r} has no time zone: at=datetime(..., tzinfo=UTC)")
        return round(at.timestamp() * 1000)
    return at


def as_pairs(headers: Given | None) -> Pairs:
    """Headers as a new list of pairs."""
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)
