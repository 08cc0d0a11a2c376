"""The input and the result of a cleaning, as plain values that go to a worker and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.protocol.batch import UNPACKED_BYTES_MAX

DEDUPE_BUFFER_BYTES = 128 << 20
IO_BUFFER_BYTES = 512 << 10


class LastRecord(NamedTuple):
    """What a log still needs of an active producer: its last data, or only its epoch."""

    data_offset: int | None
    producer_epoch: int


class SegmentFacts(NamedTuple):
    """What the cleaner needs to know of one segment."""

    base_offset: int
    next_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """The range to clean, the topic's settings, the limits, and the present time."""

    #: Keys are taken from here on; below it no key has two records.
    first_dirty_offset: int
    #: The base offset of the first segment that stays as it is.
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = 0.9
    io_buffer_bytes: int = IO_BUFFER_BYTES
    io_bytes_per_second: float = float("inf")
    #: A batch that unpacks to more is kept as it is.
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX


@dataclass(slots=True)
class CleanStats:
    """What a cleaning read, kept and found."""

    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    #: Records without a key: a compacted topic cannot keep them.
    keyless_records: int = 0
    #: Batches with a right CRC that cannot be unpacked; they stay as they are.
    malformed_batches: int = 0
    map_utilization: float = 0.0


class CleanedGroup(NamedTuple):
    """Segments `sources` (base offsets) were cleaned into the `*.cleaned` files of the first."""

    base_offset: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CleanResult:
    """The groups to swap in, in order, and the first offset that is not yet clean."""

    groups: tuple[CleanedGroup, ...]
    end_offset: int
    stats: CleanStats
