"""What the relay needs of a producer, and which topics it leaves alone for now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

_HELD_MS_FIRST = 1_000
_HELD_MS_MAX = 30_000


class Sending(Protocol):
    """The outcome of one record, as `headrace.client.delivery.Sent` has it."""

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class Sender(Protocol):
    """What the relay needs of a producer."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Sending: ...

    def flush(self, timeout: float) -> object: ...


class Admission(Protocol):
    """What the relay asks of the live switches."""

    def admit(self, topic: str, records: int, most_s: float) -> float:
        """Returns when so many records may go now; TopicSwitchedOff, RateLimited when not."""
        ...


class HeldTopics:
    """Topics that take nothing for now, each with a pause that grows while it goes on.

    A topic is held as a whole, so that its messages stay in their order.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        self._pause_ms: dict[str, int] = {}

    def at(self, now_ms: int) -> set[str]:
        """Those that are held at this time."""
        return {topic for topic, until_ms in self._until_ms.items() if now_ms < until_ms}

    def next_free_ms(self, now_ms: int) -> int | None:
        """How long until one of them is tried again, if any is held."""
        left = [until_ms - now_ms for until_ms in self._until_ms.values() if now_ms < until_ms]
        return min(left, default=None)

    def hold(self, topic: str, now_ms: int, pause_ms: int | None = None) -> bool:
        """Leave a topic alone for a time, or for longer each time; True the first of these."""
        is_new = pause_ms is None and topic not in self._pause_ms
        if pause_ms is None:
            pause_ms = self._pause_ms.get(topic, _HELD_MS_FIRST)
            self._pause_ms[topic] = min(2 * pause_ms, _HELD_MS_MAX)
        self._until_ms[topic] = now_ms + pause_ms
        return is_new

    def free(self, topics: Iterable[str]) -> None:
        """These take messages again."""
        for topic in topics:
            self._until_ms.pop(topic, None)
            self._pause_ms.pop(topic, None)
