"""Topics that the relay leaves alone for now, because they refuse messages or are switched off."""

from __future__ import annotations

from collections.abc import Iterable

_PAUSE_MS_FIRST = 1_000
_PAUSE_MS_MAX = 30_000


class HeldTopics:
    """Topics that take nothing for now; the pause of each doubles while that lasts.

    A topic is held as a whole, so that its messages stay in order.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}
        self._pause_ms: dict[str, int] = {}

    def at(self, now_ms: int) -> set[str]:
        """The topics that are held at this time."""
        return {topic for topic, until_ms in self._until_ms.items() if now_ms < until_ms}

    def next_free_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the next of them is tried again; None if no topic is held."""
        left = [until_ms - now_ms for until_ms in self._until_ms.values() if now_ms < until_ms]
        return min(left, default=None)

    def hold(self, topic: str, now_ms: int, pause_ms: int | None = None) -> bool:
        """Hold a topic for `pause_ms`, or by default for longer each time.

        Returns True the first time that it is held by default.
        """
        is_new = pause_ms is None and topic not in self._pause_ms
        if pause_ms is None:
            pause_ms = self._pause_ms.get(topic, _PAUSE_MS_FIRST)
            self._pause_ms[topic] = min(2 * pause_ms, _PAUSE_MS_MAX)
        self._until_ms[topic] = now_ms + pause_ms
        return is_new

    def release(self, topics: Iterable[str]) -> None:
        """Note that these topics take messages again."""
        for topic in topics:
            self._until_ms.pop(topic, None)
            self._pause_ms.pop(topic, None)
