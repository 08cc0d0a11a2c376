"""Large batches on their way to a file before they are appended to it, written by a thread.

A batch is written behind the end of its file, where the append that follows will want it, all but
its head. Only that append, on the loop's thread as ever, checks the batch, gives it its offsets and
writes the head, or refuses it. Until then the file's size has not changed and nobody reads there;
without its head a batch is no batch, so what a crash leaves behind is cut off by recovery.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Protocol

from headrace.protocol.primitives import Buffer


class Stage(Protocol):
    """A batch on its way."""

    def run(self) -> None:
        """Write it, on any thread; never fails: what is not there the append writes."""

    def end(self) -> None:
        """Cut off what was not appended; on the thread that appends, after the append or instead.

        Returns once nothing is being written any more.
        """


class Descriptor(Protocol):
    """An open file; the number stays its own as long as somebody holds the object."""

    fd: int


class Grows(Protocol):
    """The file that a batch is on its way to."""

    size: int
    staged: OsStage | None


class OsStage:
    """A batch on its way to a file of the operating system."""

    __slots__ = (
        "_data",
        "_descriptor",
        "_file",
        "_head_bytes",
        "_is_written",
        "_position",
        "_turn",
    )

    def __init__(
        self, file: Grows, descriptor: Descriptor, data: memoryview, head_bytes: int
    ) -> None:
        self._file = file
        self._descriptor = descriptor
        self._data = data
        self._head_bytes = head_bytes
        self._position = file.size
        self._is_written = False
        self._turn = threading.Lock()
        self._turn.acquire()
        file.staged = self

    def run(self) -> None:
        body = self._data[self._head_bytes :]
        position = self._position + self._head_bytes
        try:
            self._is_written = os.pwrite(self._descriptor.fd, body, position) == len(body)
        except OSError:
            pass  # the append will meet the same trouble and tell of it
        finally:
            body.release()
            self._turn.release()

    def unwritten(self, data: Buffer) -> Buffer:
        """What is left to write of data at the file's end; waits for a write under way."""
        with self._turn:
            is_mine = (
                self._is_written
                and self._file.size == self._position
                and isinstance(data, memoryview)
                and data.obj is self._data.obj
                and len(data) == len(self._data)
            )
            self._is_written = False  # by now, or never
            return data[: self._head_bytes] if is_mine else data

    def end(self) -> None:
        with self._turn:
            self._file.staged = None
            if self._file.size < self._position + len(self._data):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor.fd, self._file.size)
            self._data.release()
