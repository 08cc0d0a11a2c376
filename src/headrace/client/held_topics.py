"""Topics that nothing is sent to for now, because they refuse records or are switched off."""

from __future__ import annotations

from collections.abc import Iterable


class HeldTopics:
    """Topics that take nothing for now; the pause of each doubles while that lasts.

    A topic is held as a whole, so that its messages stay in order.
    """

    def __init__(self, pause_ms_first: int, pause_ms_max: int) -> None:
        self._pause_ms_first = pause_ms_first
        self._pause_ms_max = pause_ms_max
        self._until_ms: dict[str, int] = {}
        self._pause_ms: dict[str, int] = {}

    def at(self, now_ms: int) -> set[str]:
        """The topics that are held at this time."""
        return {topic for topic, until_ms in self._until_ms.items() if now_ms < until_ms}

    def is_held(self, topic: str, now_ms: int) -> bool:
        """Whether a topic is held at this time."""
        return now_ms < self._until_ms.get(topic, 0)

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
            pause_ms = self._pause_ms.get(topic, self._pause_ms_first)
            self._pause_ms[topic] = min(2 * pause_ms, self._pause_ms_max)
        self._until_ms[topic] = now_ms + pause_ms
        return is_new

    def release(self, topics: Iterable[str]) -> None:
        """Note that these topics take messages again."""
        for topic in topics:
            self._until_ms.pop(topic, None)
            self._pause_ms.pop(topic, None)

    def reset_pauses(self, topics: Iterable[str]) -> None:
        """Begin with the shortest pause when these topics are held next; held ones stay held."""
        if self._pause_ms:
            for topic in topics:
                self._pause_ms.pop(topic, None)
