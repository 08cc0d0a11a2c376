"""Reading older batches: located through the index and, where needed, checked first.

Batches that this process appended were checked then and are served as they are. Older data on disk
is checked whenever it is read: the CRC and, since the CRC does not cover them, that the offsets
neither overlap nor leave the segment and that the leader epoch is the one in the epoch cache. So a
bit that flipped on disk is an error, never wrong data. A CRC of 1 MB costs some 45 µs, a tenth of
sending it.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.files import pread
from headrace.storage.log.epochs import NO_EPOCH
from headrace.storage.log.lookup import refuse_offset
from headrace.storage.log.scan import BadBatch
from headrace.storage.log.slices import Slice
from headrace.storage.recovery.repair import rebuild_indexes

if TYPE_CHECKING:
    from headrace.storage.log.epochs import EpochCache
    from headrace.storage.log.log import Log
    from headrace.storage.log.segment import Segment

_base_offset = attrgetter("base_offset")
# Of a batch's header: base offset, length, leader epoch, magic, CRC, last offset delta.
_unpack_essence = Struct(">qiibI2xi").unpack_from

CHECKED_BYTES_MAX = 4 << 20
CHECKED_BATCHES_MAX = 512
"""A read of unchecked data returns no more than this (but always one whole batch), so that the
check takes no longer than half a millisecond."""


class ColdRead(Exception):
    """The data is not in the page cache: call `warm` in a thread, then read again."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(f"offset {request.offset} is not in the page cache")
        self._request = request

    def warm(self) -> None:
        """Bring the data into the page cache; the next read reports errors."""
        try:
            self._request.run(wait=True)
        except (KafkaError, OSError):
            return


def read_older(
    log: Log, offset: int, max_bytes: int, limit: int, min_one: bool, wait: bool
) -> Slice | None:
    """As `Log.read`, for batches that are not among the newest."""
    if not log.start_offset <= offset <= log.end_offset:
        refuse_offset(log, offset)
    if log.active.index_damaged:
        log.roll(log.active.created_ms)  # sealed, it gets its index rebuilt when read
    segments = log.segments
    at = max(0, bisect_right(segments, offset, key=_base_offset) - 1)
    for index in range(at, len(segments)):
        if offset >= limit:
            return None
        segment = segments[index]
        sealed = index + 1 < len(segments)
        end_offset = segments[index + 1].base_offset if sealed else log.end_offset
        request = ReadRequest(
            segment, sealed, end_offset, log.epochs, offset, max_bytes, limit, min_one
        )
        piece = request.run(wait)
        if piece is not None:
            return piece if piece.length else None
    return None


class ReadRequest:
    """A read of one segment: from offset on, batches that end at or below limit."""

    __slots__ = (
        "end_offset",
        "epochs",
        "limit",
        "max_bytes",
        "min_one",
        "offset",
        "sealed",
        "segment",
    )

    def __init__(
        self,
        segment: Segment,
        sealed: bool,
        end_offset: int,
        epochs: EpochCache,
        offset: int,
        max_bytes: int,
        limit: int,
        min_one: bool,
    ) -> None:
        self.segment = segment
        self.sealed = sealed
        self.end_offset = end_offset  # where the segment ends: base of the next, or end of log
        self.epochs = epochs
        self.offset = offset
        self.max_bytes = max_bytes
        self.limit = limit
        self.min_one = min_one

    def run(self, wait: bool) -> Slice | None:
        """The batches, or None if the segment has none at or after the offset.

        Raises KafkaError CORRUPT_MESSAGE for damage, ColdRead if wait is off and the data is not
        in the page cache.
        """
        segment = self.segment
        try:
            if segment.index_damaged and self.sealed:
                self._repair(wait)
            found = segment.locate(self.offset, wait)
            if found is None:
                return None
            position, header = found
            if header.size > self.max_bytes and not self.min_one:
                return Slice(segment.file, position, 0)
            end = segment.trusted_end(position)
            if end == position:
                return self._checked(position, header.size, wait)
            if header.next_offset > self.limit:
                return Slice(segment.file, position, 0)
            return self._trusted(position, end, header.size, wait)
        except BadBatch as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{segment.file.path} at {error}; run `headrace log verify` for details",
            ) from error
        except BlockingIOError:
            raise ColdRead(self) from None

    def _repair(self, wait: bool) -> None:
        """Rebuild the index of a sealed segment; a thread has to do it."""
        if not wait:
            raise BlockingIOError
        rebuild_indexes(self.segment, self.end_offset)

    def _trusted(self, position: int, end: int, first_bytes: int, wait: bool) -> Slice:
        segment = self.segment
        if self.limit < self.end_offset:
            found = segment.locate(self.limit, wait)
            end = min(end, found[0]) if found else end
        if end - position > self.max_bytes:
            # End at a batch boundary if the index has one there: half a batch is useless.
            end = segment.offsets.warm_floor_value(position + self.max_bytes)
            if end <= position:
                end = position + max(first_bytes, self.max_bytes)
        return Slice(segment.file, position, end - position)

    def _checked(self, position: int, first_bytes: int, wait: bool) -> Slice:
        segment = self.segment
        budget = max(first_bytes, min(self.max_bytes, CHECKED_BYTES_MAX))
        room = segment.size - position
        # One header more than asked for: the batch after the last one confirms its end.
        data = memoryview(pread(segment.file, min(budget + HEADER_BYTES, room), position, wait))
        at = last_at = count = 0
        first_beyond = False
        expected = segment.base_offset
        known_epoch = epoch_upto = NO_EPOCH
        while at < room:
            if at + HEADER_BYTES > len(data):
                if len(data) == room:
                    self._damaged(position, at, "cut inside a header")
                break
            base_offset, length, epoch, magic, crc, last_delta = _unpack_essence(data, at)
            end = at + LOG_OVERHEAD_BYTES + length
            if base_offset < expected:
                # One of the two is wrong, and there is no telling which: neither is served.
                self._damaged(position, last_at, f"offset {base_offset} is below {expected}")
                return Slice(segment.file, position, last_at)
            if magic != MAGIC or end < at + HEADER_BYTES or end > room:
                self._damaged(position, at, f"magic {magic}, length {length}")
                break
            # The first batch is checked even beyond the limit: its offsets may be wrong.
            beyond = base_offset + last_delta >= self.limit
            if count and (beyond or end > budget or count == CHECKED_BATCHES_MAX):
                break
            if crc32c(data[at + ATTRIBUTES_AT : end]) != crc:
                self._damaged(position, at, "checksum differs")
                break
            if base_offset >= epoch_upto:
                known_epoch, epoch_upto = self.epochs.span_at(base_offset)
            if epoch != known_epoch and NO_EPOCH not in (epoch, known_epoch):
                self._damaged(position, at, f"leader epoch {epoch} is not {known_epoch}")
                break
            if last_delta < 0 or base_offset + last_delta >= self.end_offset:
                self._damaged(position, at, f"offset {base_offset} is beyond the segment")
                break
            first_beyond = first_beyond or (beyond and not count)
            last_at, at = at, end
            expected = base_offset + last_delta + 1
            count += 1
        segment.hint(expected, position + at)
        segment.mark_checked(position, position + at)
        return Slice(segment.file, position, 0 if first_beyond else at)

    def _damaged(self, position: int, at: int, reason: str) -> None:
        """Raise BadBatch for the first batch of a read; what comes before damage is served."""
        if at == 0:
            raise BadBatch(position, reason)
