"""The settings of a topic that concern its log, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_INT64_MAX = (1 << 63) - 1

DELETE = "delete"
COMPACT = "compact"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Topic-level settings of one log; a changed copy is assigned to `Log.config`."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    flush_messages: int = 1
    flush_ms: int = 50
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    @property
    def compression_level(self) -> int | None:
        """The level for the codec of `compression_type`; None for the codec's default."""
        levels = {
            # Kafka's -1 means the codec's default; the codec itself does not accept -1.
            "gzip": None if self.compression_gzip_level < 0 else self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How old the active segment may get; it is not compacted, so compaction limits its age."""
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def deletes(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME
