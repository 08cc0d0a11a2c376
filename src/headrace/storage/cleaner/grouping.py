"""Which neighbouring segments are cleaned into one, so that logs do not end as many small files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

RELATIVE_OFFSET_MAX = 2**31 - 1


class SegmentFacts(NamedTuple):
    """What the cleaner needs to know of one segment, as plain values that travel to a worker."""

    base_offset: int
    next_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentFacts], *, segment_bytes: int, index_bytes: int
) -> list[list[SegmentFacts]]:
    """Cut segments, in offset order, into groups that each fit one segment even if nothing goes."""
    groups: list[list[SegmentFacts]] = []
    log_sum = index_sum = time_index_sum = 0
    for segment in segments:
        log_sum += segment.log_bytes
        index_sum += segment.index_bytes
        time_index_sum += segment.time_index_bytes
        fits = (
            bool(groups)
            and log_sum <= segment_bytes
            and index_sum <= index_bytes
            and time_index_sum <= index_bytes
            # Indexes hold offsets relative to the base in 31 bits. An empty segment adds none, so
            # a run of them over a long gap still becomes one.
            and (
                segment.log_bytes == 0
                or segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_sum = segment.log_bytes
            index_sum = segment.index_bytes
            time_index_sum = segment.time_index_bytes
    return groups
