"""A piece of a log file that a reader gets: its position and length, not its bytes."""

from __future__ import annotations

import errno

from headrace.storage.files import File

# The kernel reads ahead at least this much, so one probe covers this many bytes.
_PROBE_STEP_BYTES = 128 << 10


class Slice:
    """Bytes of one file; copied only when read, or never with sendfile."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes | bytearray:
        """All the bytes; may wait for the disk. Raises OSError."""
        return self._whole(self.file.pread(self.length, self.position))

    def read_nowait(self) -> bytes | bytearray | None:
        """All the bytes, or None if that would wait for the disk; raises OSError."""
        data = self.file.pread_nowait(self.length, self.position)
        return None if data is None else self._whole(data)

    def _whole(self, data: bytes | bytearray) -> bytes | bytearray:
        if len(data) != self.length:
            raise OSError(errno.EIO, "the file was truncated meanwhile", self.file.path)
        return data

    def is_resident(self) -> bool:
        """Whether the bytes are most likely in the page cache, by probing a few of them."""
        probe = self.file.pread_nowait
        position, last = self.position, self.position + self.length - 1
        while position < last:
            if probe(1, position) is None:
                return False
            position += _PROBE_STEP_BYTES
        return self.length == 0 or probe(1, last) is not None

    def split(self, length: int) -> tuple[Slice, Slice | None]:
        """The first length bytes and, if there are more, the rest."""
        if length >= self.length:
            return self, None
        rest = Slice(self.file, self.position + length, self.length - length)
        return Slice(self.file, self.position, length), rest

    def __repr__(self) -> str:
        return f"Slice({self.file.path!r}, {self.position}, {self.length})"
