"""`.timeindex`: from a timestamp to the offset up to which no later timestamp was seen.

An entry is the greatest timestamp of the segment so far (int64) and the last offset, relative to
the segment's base (int32), of the batch that brought it, as Apache Kafka writes it.
"""

from __future__ import annotations

from struct import Struct

from headrace.storage.log.sparse_index import SparseIndex


class TimeIndex(SparseIndex):
    """Keys are timestamps, values are relative offsets."""

    ENTRY = Struct(">qi")
    __slots__ = ()

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless its timestamp is already covered."""
        last = self.last()
        if last is None or timestamp > last[0]:
            self.append(timestamp, relative_offset)
