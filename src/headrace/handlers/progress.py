"""How far one partition is done: messages arrive in order and finish in any order."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

NO_FLOOR = 1 << 63
# Finished entries are removed many at a time, because each removal moves what follows.
TRIM_ENTRIES = 8192


class Progress:
    """The gap tracker of one partition; 9 bytes for each message that is not yet safe.

    An arrival gets a sequence number, because offsets have holes (compaction, transaction
    markers). The safe offset is that of the lowest unfinished message: all below it is done.
    """

    __slots__ = ("_base", "_finished", "_head", "_kept", "_offsets", "floor", "next_offset")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._finished = bytearray()
        self._base = 0
        self._head = 0
        self._kept: list[tuple[int, int]] = []
        # The first offset of the oldest incomplete message of several records.
        self.floor = NO_FLOOR
        self.next_offset = -1

    def arrive(self, offset: int) -> int:
        """Note a message that was received; returns its sequence number."""
        if offset < self.next_offset:
            raise ValueError(f"offset {offset} arrived after {self.next_offset - 1}")
        self.next_offset = offset + 1
        self._offsets.append(offset)
        self._finished.append(0)
        return self._base + len(self._offsets) - 1

    def arrive_all(self, offsets: Sequence[int]) -> range:
        """Note messages in the order of their offsets; returns their sequence numbers."""
        if offsets and offsets[0] < self.next_offset:
            raise ValueError(f"offset {offsets[0]} arrived after {self.next_offset - 1}")
        first = self._base + len(self._offsets)
        if offsets:
            self.next_offset = offsets[-1] + 1
            self._offsets.extend(offsets)
            self._finished.extend(bytes(len(offsets)))
        return range(first, first + len(offsets))

    def finish_run(self, first: int, count: int) -> None:
        """Note that messages with consecutive sequence numbers need no more work."""
        start = first - self._base
        if start >= 0:
            self._finished[start : start + count] = b"\x01" * count
        else:
            for sequence in range(first, first + count):
                self.finish(sequence)

    def finish(self, sequence: int) -> None:
        """Note that a message needs no more work; a repeated call changes nothing."""
        if sequence >= self._base:
            self._finished[sequence - self._base] = 1

    def keep_from(self, first: int, last: int) -> None:
        """Note that the message at `last` begins at `first`, which is needed until it is done."""
        self._kept.append((first, last))

    def pass_by(self, offset: int) -> None:
        """Note that nothing up to this offset is still to arrive."""
        self.next_offset = max(self.next_offset, offset + 1)

    def safe_offset(self) -> int:
        """The offset to commit: everything below it is finished; -1 before the first arrival."""
        offset = self._prefix()
        if self._kept:
            self._kept = [kept for kept in self._kept if kept[1] >= offset]
            offset = min([offset, *(first for first, _ in self._kept)])
        return min(offset, self.floor)

    def _prefix(self) -> int:
        head = self._finished.find(0, self._head)
        if head < 0:
            self._head = len(self._finished)
            self._trim()
            return self.next_offset
        self._head = head
        offset = self._offsets[head]
        self._trim()
        return offset

    @property
    def unsafe(self) -> int:
        """How many messages have arrived since the lowest unfinished one, including it."""
        self.safe_offset()
        return len(self._finished) - self._head

    def _trim(self) -> None:
        head = self._head
        if head >= TRIM_ENTRIES or head == len(self._finished):
            del self._offsets[:head]
            del self._finished[:head]
            self._base += head
            self._head = 0
