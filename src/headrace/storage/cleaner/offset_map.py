"""The offset map: the latest offset of every key in the dirty part of a log, in bounded memory."""

from __future__ import annotations

import mmap
import struct
from hashlib import blake2b

# A slot is three 64-bit cells: offset + 1 (zero means empty), then 128 bits of the key's hash.
CELLS_PER_SLOT = 3
SLOT_BYTES = 8 * CELLS_PER_SLOT
SLOTS_MIN = 3
HASH_BYTES = 16

_halves = struct.Struct("<QQ").unpack


class OffsetMap:
    """Key -> latest offset by open addressing in one anonymous mapping; keys are never deleted.

    A key is represented by 128 bits of BLAKE2b: 24 bytes a key whatever its length, and an
    accidental collision (which would drop a live record) is practically impossible. A Python dict
    would take five times the memory.
    """

    __slots__ = ("_cells", "_limit", "_memory", "entries", "latest_offset", "slots")

    def __init__(self, memory_bytes: int, *, load_factor: float = 0.9, keys_max: int | None = None):
        """Take at most `memory_bytes`, and no more than `keys_max` keys would need."""
        slots = memory_bytes // SLOT_BYTES
        if keys_max is not None:
            slots = min(slots, int(keys_max / load_factor) + SLOTS_MIN)
        if slots < SLOTS_MIN:
            raise ValueError(
                f"an offset map of {memory_bytes} bytes holds no key; "
                f"raise log.cleaner.dedupe.buffer.size"
            )
        # A prime number of slots makes every step of the double hashing visit every slot.
        self.slots = _prime_at_most(slots)
        self._limit = max(1, min(self.slots - 1, int(self.slots * load_factor)))
        self._memory = mmap.mmap(-1, self.slots * SLOT_BYTES)
        self._cells: memoryview[int] = memoryview(self._memory).cast("Q")
        self.entries = 0
        #: Everything up to and including this offset is in the map.
        self.latest_offset = -1

    @property
    def full(self) -> bool:
        return self.entries >= self._limit

    @property
    def utilization(self) -> float:
        return self.entries / self.slots

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` for `key`; False, without a change, if a new key has no room."""
        first, second = _halves(blake2b(key, digest_size=HASH_BYTES).digest())
        cells, slots = self._cells, self.slots
        slot = first % slots
        step = 1 + second % (slots - 1)
        while True:
            cell = slot * CELLS_PER_SLOT
            if cells[cell] == 0:
                if self.entries >= self._limit:
                    return False
                cells[cell] = offset + 1
                cells[cell + 1] = first
                cells[cell + 2] = second
                self.entries += 1
                return True
            if cells[cell + 1] == first and cells[cell + 2] == second:
                cells[cell] = offset + 1
                return True
            slot += step
            if slot >= slots:
                slot -= slots

    def get(self, key: bytes) -> int:
        """The latest offset of `key`, or -1 if the dirty part does not have it."""
        first, second = _halves(blake2b(key, digest_size=HASH_BYTES).digest())
        cells, slots = self._cells, self.slots
        slot = first % slots
        step = 1 + second % (slots - 1)
        while True:
            cell = slot * CELLS_PER_SLOT
            stored: int = cells[cell]
            if stored == 0:
                return -1
            if cells[cell + 1] == first and cells[cell + 2] == second:
                return stored - 1
            slot += step
            if slot >= slots:
                slot -= slots

    def close(self) -> None:
        """Free the memory."""
        self._cells.release()
        self._memory.close()


def _prime_at_most(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
