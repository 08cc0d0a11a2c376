"""How much a node may keep: a bound on items and bytes, with a queue of those who wait for room."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from headrace.dispatch.errors import DispatchError, SpoolFull

# Called once, with None when there is room, or with why there will never be.
Entered = Callable[[Exception | None], None]

WHEN_FULL = ("wait", "refuse")


class Room:
    """First come, first served; what was recovered or taken over may exceed the bound."""

    def __init__(self, items_max: int, bytes_max: int, full: str) -> None:
        if full not in WHEN_FULL:
            raise ValueError(f"full={full!r} is none of {', '.join(WHEN_FULL)}")
        self.items = self.bytes = 0
        self.items_max = items_max
        self.bytes_max = bytes_max
        self._refuses = full == "refuse"
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, int, Entered]] = deque()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Submitters that wait for room."""
        return len(self._waiting)

    def enter(self, items: int, size: int, entered: Entered) -> None:
        """Have it called as soon as there is room, at once if there is; SpoolFull if refused."""
        if items > self.items_max or size > self.bytes_max:
            raise SpoolFull(
                f"{items} jobs of {size} bytes do not fit into a spool of {self.items_max} jobs "
                f"and {self.bytes_max} bytes",
                "submit fewer at once, or raise spool_items_max or spool_bytes_max",
            )
        with self._lock:
            if self._is_closed:
                raise closed()
            has_room = not self._waiting and self._fits(items, size)
            if has_room:
                self._take(items, size)
            elif self._refuses:
                raise SpoolFull(
                    f"the spool holds {self.items} jobs of {self.bytes} bytes, its limit",
                    'submit later, start more workers, or wait for room with full="wait"',
                )
            else:
                self._waiting.append((items, size, entered))
        if has_room:
            entered(None)

    def occupy(self, items: int, size: int) -> None:
        """Count what came in by another way."""
        with self._lock:
            self._take(items, size)

    def leave(self, items: int, size: int) -> None:
        """Give room back, and let in who fits now."""
        entered: list[Entered] = []
        with self._lock:
            self._take(-items, -size)
            while self._waiting and self._fits(*self._waiting[0][:2]):
                wanted, wanted_bytes, enter = self._waiting.popleft()
                self._take(wanted, wanted_bytes)
                entered.append(enter)
        for enter in entered:
            enter(None)

    def close(self) -> None:
        """Let nobody in any more."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, deque()
        for *_, enter in waiting:
            enter(closed())

    def open(self) -> None:
        """Begin anew, empty."""
        with self._lock:
            self._is_closed = False
            self.items = self.bytes = 0

    def _fits(self, items: int, size: int) -> bool:
        return self.items + items <= self.items_max and self.bytes + size <= self.bytes_max

    def _take(self, items: int, size: int) -> None:
        self.items += items
        self.bytes += size


def closed() -> DispatchError:
    """What a submitter is told once the dispatcher has stopped."""
    return DispatchError("the dispatcher has stopped; the job was not kept", "dispatcher.start()")
