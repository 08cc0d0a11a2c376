"""Receive buffers: one small one shared by all connections, and a pool for large frames."""

from __future__ import annotations

SCRATCH_BYTES = 64 * 1024
# Frames up to this size are put together in the scratch buffer; larger ones get their own buffer,
# and the socket reads straight into it.
SMALL_FRAME_BYTES = 16 * 1024
# What the pool keeps. Fresh pages cost a fault each (ten times a copy on a virtual machine), so a
# warm buffer is worth keeping; beyond this, memory goes back to the system.
POOL_BYTES_MAX = 16 * 1024 * 1024


class BufferPool:
    """Large buffers, reused last in first out so that their pages stay warm."""

    def __init__(self, limit_bytes: int) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._free_bytes = 0
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self.scratch = bytearray(SCRATCH_BYTES)

    def has_room(self, size: int) -> bool:
        """Whether there is room for a frame (`queued.max.request.bytes`); one always fits."""
        if self._limit_bytes <= 0 or not self.used_bytes:
            return True
        return self.used_bytes + size <= self._limit_bytes

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes; its content is undefined."""
        size_class = 1 << (size - 1).bit_length()
        # Above the pool's limit exact sizes waste less than powers of two.
        if size_class > POOL_BYTES_MAX:
            size_class = size
        self.used_bytes += size
        free = self._free.get(size_class)
        if free:
            self._free_bytes -= size_class
            return free.pop()
        return bytearray(size_class)

    def give_back(self, buffer: bytearray, size: int) -> None:
        """Return a buffer that `take(size)` gave."""
        self.used_bytes -= size
        size_class = len(buffer)
        if self._free_bytes + size_class <= POOL_BYTES_MAX:
            self._free.setdefault(size_class, []).append(buffer)
            self._free_bytes += size_class
