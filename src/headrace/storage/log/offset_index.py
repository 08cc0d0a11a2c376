"""`.index`: from an offset to a position in the log file, one entry about every few KB.

An entry is the last offset of a batch, relative to the segment's base (int32), and the position
at which that batch starts (int32), as Apache Kafka writes it.
"""

from __future__ import annotations

from struct import Struct

from headrace.storage.log.sparse_index import SparseIndex


class OffsetIndex(SparseIndex):
    """Keys are relative last offsets, values are positions."""

    ENTRY = Struct(">ii")
    __slots__ = ()
