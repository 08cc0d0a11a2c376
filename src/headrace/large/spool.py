"""Holds the chunks of messages that are not whole yet, in memory while they fit, else in a file.

The files have no name, so nothing is left of them when the process ends, however it ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from typing import IO

from headrace.large.errors import NoDiskSpace


class MemoryBudget:
    """How many bytes of chunks may be in memory; shared by all readers of an app."""

    def __init__(self, memory_bytes: int, folder: str | None) -> None:
        self.folder = folder
        self._left = memory_bytes
        # A spool may be freed at any point, also inside one of these methods.
        self._lock = threading.RLock()

    def take(self, size: int) -> bool:
        """Reserve bytes; False if fewer are left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._left += size

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._left


class Spool:
    """The chunks of one body, in any order; freed with the last reference to it.

    `put` is for one thread, `read` for many.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._in_memory: dict[int, bytes] = {}
        # The position of a chunk in the file, and its length.
        self._in_file: dict[int, tuple[int, int]] = {}
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._file_bytes = 0

    def put(self, index: int, data: bytes) -> None:
        """Keep a chunk; NoDiskSpace if the disk is full."""
        if self._file is None and self._budget.take(len(data)):
            self._in_memory[index] = data
            self._memory_bytes += len(data)
            return
        try:
            # A body that does not fit is moved to the file as a whole, to leave memory to others.
            while self._in_memory:
                self._move_out(next(iter(self._in_memory)))
            self._write(index, data)
        except OSError as problem:
            raise NoDiskSpace(f"cannot store the chunks of a large message: {problem}") from problem

    def _move_out(self, index: int) -> None:
        data = self._in_memory[index]
        self._write(index, data)
        del self._in_memory[index]
        self._memory_bytes -= len(data)
        self._budget.give_back(len(data))

    def _write(self, index: int, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - it lives as long as the spool
                prefix="headrace-large-", dir=self._budget.folder
            )
        descriptor, at = self._file.fileno(), self._file_bytes
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, self._file_bytes)
            self._file_bytes += written
            view = view[written:]
        self._in_file[index] = at, len(data)

    def read(self, index: int, start: int, size: int) -> bytes:
        """Up to `size` bytes of a chunk, from `start` on."""
        data = self._in_memory.get(index)
        if data is not None:
            return data[start : start + size]
        if index not in self._in_file:
            return b""
        assert self._file is not None
        at, length = self._in_file[index]
        return os.pread(self._file.fileno(), min(size, length - start), at + start)

    def __len__(self) -> int:
        return len(self._in_memory) + len(self._in_file)

    @property
    def body_bytes(self) -> int:
        """The size of all chunks."""
        return self._memory_bytes + self._file_bytes

    def __del__(self) -> None:
        self._budget.give_back(self._memory_bytes)
        if self._file is not None:
            self._file.close()
