"""The settings of group coordination."""

from __future__ import annotations

from dataclasses import dataclass

# A new member does not know its id before the response to its join, so it cannot send heartbeats;
# it may wait this long before it counts as gone.
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays; the defaults are Kafka's."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    group_size_max: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
