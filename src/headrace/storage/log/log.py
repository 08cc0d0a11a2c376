"""The log of one partition: segments in offset order, appended to at the end of the last.

All methods are called from one thread. `Flush.run` and `Checkpoint.run`, between their begin and
their completion on that thread, may run on any other, as may the functions of `lookup`.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

from headrace.protocol.batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    restamp,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.files import FileSystem
from headrace.storage.log import appending, lookup, trimming
from headrace.storage.log.appending import (
    MEANINGFUL_ATTRIBUTES,
    REFUSED_ATTRIBUTES,
    AppendInfo,
    Origin,
)
from headrace.storage.log.config import LogConfig
from headrace.storage.log.deleted import DeletedSegments
from headrace.storage.log.epochs import EpochCache
from headrace.storage.log.flush import Arrival, Checkpoint, Flush, Unsynced
from headrace.storage.log.lookup import TimestampOffset
from headrace.storage.log.producers import Producers
from headrace.storage.log.reading import read_older
from headrace.storage.log.segment import Segment
from headrace.storage.log.slices import Slice
from headrace.storage.log.snapshots import Snapshot
from headrace.storage.log.swap import Swap
from headrace.storage.recovery.replay import replay

RELATIVE_OFFSET_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_CLIENT = Origin.CLIENT

_unpack_header = Struct(">qiibIhiqqqhii").unpack_from
# Base offset, length (unchanged) and leader epoch are adjacent: one call patches them all.
_pack_place = Struct(">qii").pack_into


class Log:
    """One partition on disk."""

    __slots__ = (
        "_active",
        "_active_file",
        "_config",
        "_high_watermark",
        "_max_batch_bytes",
        "_must_inspect",
        "_on_truncation",
        "_random",
        "_roll_after",
        "_roll_by_message_time",
        "_segment_bytes",
        "deleted",
        "deleted_segments",
        "dir",
        "end_offset",
        "epochs",
        "fs",
        "offline_error",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "start_offset",
        "swap",
        "synced_offset",
        "topic",
        "topic_id",
        "truncations",
        "unsynced",
    )

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: list[Segment],
        *,
        start_offset: int,
        end_offset: int,
        epochs: EpochCache,
        producers: Producers,
        topic_id: bytes | None = None,
        on_truncation: Callable[[Log], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.fs = fs
        self.dir = folder
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = end_offset
        self.recovery_point = end_offset
        self.epochs = epochs
        self.producers = producers
        self.offline_error: OSError | None = None
        self.swap: Swap | None = None
        self.deleted = False
        self.truncations = 0
        self._on_truncation = on_truncation
        self._random = rng or random.Random()
        self._high_watermark = end_offset
        self.unsynced = Unsynced()
        self.deleted_segments = DeletedSegments()
        self._config = config
        self.set_segments(segments)
        self.config = config
        producers.high_watermark_moved(end_offset)

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._must_inspect = (
            config.uses_log_append_time
            or config.is_compacted
            or config.message_timestamp_before_max_ms < _INT64_MAX
        )
        self._configure(self._active)
        self._plan_roll()

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        if self.producers.first_unstable_offset is not None:
            self.producers.high_watermark_moved(offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction without a marker below the high watermark."""
        return self.producers.first_unstable_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable > self._high_watermark:
            return self._high_watermark
        return max(unstable, self.start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.file.size for segment in self.segments)

    def append(
        self,
        data: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = _CLIENT,
        keys_checked: bool = False,
    ) -> AppendInfo:
        """Write batches at the end; durable once `synced_offset` has passed them.

        The given memory is changed: it gets its offsets. On a compacted topic every record is
        checked for a key, unless the caller has done so. Raises KafkaError for a refused batch and
        OSError for a disk fault; either way nothing of a client's batch is left in the log.
        """
        if origin is not _CLIENT:
            return self._append_internal(data, leader_epoch, now_ms, origin)
        size = len(data)
        try:
            (
                sent_offset,
                length,
                _,
                magic,
                crc,
                attributes,
                last_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                sequence,
                count,
            ) = _unpack_header(data)
        except StructError:
            appending.refuse_produced(data)
        if (
            length + 12 != size
            or magic != 2
            or count != last_delta + 1
            or count < 1
            or sent_offset != 0
            or attributes & MEANINGFUL_ATTRIBUTES in REFUSED_ATTRIBUTES
            or crc32c(data[21:]) != crc
        ):
            appending.refuse_produced(data)
        if size > self._max_batch_bytes:
            appending.refuse_size(size, self._config)
        if self.offline_error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.dir} is offline")
        append_time_ms = -1
        if self._must_inspect or max_timestamp > now_ms:
            if self._config.uses_log_append_time:
                append_time_ms = max_timestamp = now_ms
            else:
                appending.check_create_time(base_timestamp, max_timestamp, now_ms, self._config)
            if self._config.is_compacted and not keys_checked:
                appending.check_keys(data)
        transactional = attributes & TRANSACTIONAL_BIT != 0
        producer = None
        if producer_id >= 0 or transactional:
            producer = self.producers.by_id.get(producer_id)
            if producer is None or not producer.expects(producer_epoch, sequence, transactional):
                if sequence < 0 or producer_epoch < 0 or producer_id < 0:
                    appending.refuse_produced(data)
                repeated = self.producers.check(
                    producer_id, producer_epoch, sequence, last_delta, transactional
                )
                if repeated is not None:
                    _, _, base_offset, last_offset, timestamp = repeated
                    time_ms = timestamp if append_time_ms >= 0 else -1
                    return AppendInfo(base_offset, last_offset, time_ms, self.start_offset, True)
                producer = None

        base_offset = self.end_offset
        last_offset = base_offset + last_delta
        segment = self._active
        file = self._active_file
        position = file.size
        if position and (
            position + size > self._segment_bytes
            or (max_timestamp if self._roll_by_message_time else now_ms) > self._roll_after
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_full
        ):
            self._roll(base_offset, now_ms)
            segment = self._active
            file = self._active_file
            position = 0
        _pack_place(data, 0, base_offset, length, leader_epoch)
        if append_time_ms >= 0:
            restamp(data, 0, append_time_ms)
        file.append(data)

        self.end_offset = next_offset = last_offset + 1
        segment.remember(base_offset, next_offset, position)
        segment.record(last_offset, position, size, max_timestamp)
        if position == 0:
            self._plan_roll()
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if producer is not None:
            producer.remember(sequence, base_offset, last_offset, max_timestamp)
        elif producer_id >= 0:
            self.producers.append_batch(
                producer_id,
                producer_epoch,
                sequence,
                base_offset,
                last_offset,
                max_timestamp,
                transactional,
            )
        return AppendInfo(base_offset, last_offset, append_time_ms, self.start_offset)

    def _append_internal(
        self, data: memoryview, leader_epoch: int, now_ms: int, origin: Origin
    ) -> AppendInfo:
        """Append batches of a coordinator (they get offsets) or of a leader (they have them).

        Each batch is appended separately: after a disk fault the ones before it stay.
        """
        if self.offline_error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.dir} is offline")
        first_offset = -1
        for start, header in appending.split_batches(data):
            batch = data[start : start + header.size]
            if origin is Origin.REPLICA:
                appending.check_follows(header, self.end_offset)
            else:
                header = header._replace(base_offset=self.end_offset, leader_epoch=leader_epoch)
                appending.check_internal(batch, header, self._config, self.producers)
            if self._roll_is_due(header, now_ms):
                near = header.last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
                self._roll(self.end_offset if near else header.base_offset, now_ms)
            position = self._active_file.size
            _pack_place(batch, 0, header.base_offset, header.batch_length, header.leader_epoch)
            self._active_file.append(batch)
            self.end_offset = header.next_offset
            self._active.record(header.last_offset, position, header.size, header.max_timestamp)
            self._active.remember(header.base_offset, header.next_offset, position)
            if position == 0:
                self._plan_roll()
            replay(header, batch, self.producers, self.epochs, self._active.txn_index)
            first_offset = header.base_offset if first_offset < 0 else first_offset
        return AppendInfo(first_offset, self.end_offset - 1, -1, self.start_offset)

    def _roll_is_due(self, header: BatchHeader, now_ms: int) -> bool:
        """The roll conditions of `append` for any batch, also one far after the end of the log."""
        if header.last_offset - self._active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        time_ms = header.max_timestamp if self._roll_by_message_time else now_ms
        return self._active_file.size > 0 and (
            self._active_file.size + header.size > self._segment_bytes
            or time_ms > self._roll_after
            or self._active.is_full
        )

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self._active_file.size:
            self._roll(self.end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        # Everything that can fail comes before everything that changes the log.
        sealed = self._active
        sealed.seal()
        sealed.file.trim()
        segment = Segment.create(self.fs, self.dir, base_offset, now_ms)
        self.unsynced.add_sealed(sealed, Snapshot(base_offset, self.producers))
        sealed.forget_recent()
        if len(self.segments) > 1:
            self.segments[-2].cool()
        self.set_segments([*self.segments, segment])

    def set_segments(self, segments: list[Segment]) -> None:
        """Replace the list of segments; the last one is active."""
        self.segments = segments
        self._active = segments[-1]
        self._active_file = segments[-1].file
        self._configure(self._active)
        self._plan_roll()

    def _configure(self, segment: Segment) -> None:
        jitter_ms = min(self._config.segment_jitter_ms, self._config.roll_ms)
        segment.configure(
            self._config.index_interval_bytes,
            self._config.segment_index_bytes,
            self._random.randrange(jitter_ms) if jitter_ms > 0 else 0,
        )
        if self._config.preallocate:
            segment.file.reserve(self._config.segment_bytes)
        else:
            segment.file.trim()

    def _plan_roll(self) -> None:
        """Compute when the active segment is too old, by its first timestamp as Kafka does."""
        segment = self._active
        self._roll_by_message_time = segment.first_timestamp >= 0
        began_ms = segment.first_timestamp if self._roll_by_message_time else segment.created_ms
        self._roll_after = began_ms + self._config.roll_ms - segment.roll_jitter_ms

    def read(
        self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True, wait: bool = True
    ) -> Slice | None:
        """Whole batches from the one that holds offset, ending at or below limit; None without any.

        With min_one at least one batch, whatever max_bytes says. Raises KafkaError
        OFFSET_OUT_OF_RANGE or CORRUPT_MESSAGE, and ColdRead if wait is off and the data is not
        in the page cache.
        """
        segment = self._active
        if offset < segment.recent_from:
            return read_older(self, offset, max_bytes, limit, min_one, wait)
        if offset >= limit or offset >= self.end_offset:
            if offset > self.end_offset:
                lookup.refuse_offset(self, offset)
            return None
        nexts = segment.recent_nexts
        positions = segment.recent_positions
        first = bisect_right(nexts, offset)
        start = positions[first]
        if limit >= self.end_offset:
            end = segment.file.size
        else:
            after = bisect_right(nexts, limit)
            if after <= first:
                return None
            end = positions[after] if after < len(positions) else segment.file.size
        if end - start > max_bytes:
            # The last batch boundary within the limit; the first batch is always whole.
            at = bisect_right(positions, start + max_bytes) - 1
            if at > first:
                end = positions[at]
            elif not min_one:
                return None
            elif first + 1 < len(positions):
                end = positions[first + 1]
        return Slice(segment.file, start, end - start)

    def aborted_transactions(self, from_offset: int, limit: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in a range."""
        return lookup.aborted_transactions(self, from_offset, limit)

    def offset_behind(self, piece: Slice) -> int:
        """An offset just above all batches of a piece that `read` returned."""
        return lookup.offset_behind(self, piece)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a timestamp; may wait for the disk."""
        return lookup.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp (KIP-734); may wait for the disk."""
        return lookup.max_timestamp_offset(self)

    def begin_flush(self) -> Flush | None:
        """A flush of everything written; None if it is durable or a flush is running."""
        return self.unsynced.begin_flush(self)

    def complete_flush(self, flush: Flush) -> None:
        """Move `synced_offset`; after a failed flush the log is offline for good."""
        self.unsynced.complete_flush(self, flush)

    def begin_checkpoint(self) -> Checkpoint | None:
        """A checkpoint of everything written; None if there is nothing new."""
        return self.unsynced.begin_checkpoint(self)

    def complete_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Move the recovery point; after a failure the log is offline for good."""
        self.unsynced.complete_checkpoint(self, checkpoint)

    def delete_records(self, offset: int) -> int:
        """Move the start of the log up; see `trimming.delete_records`."""
        return trimming.delete_records(self, offset)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop batches that reach offset or beyond; durable when this returns."""
        trimming.truncate_to(self, offset, now_ms)

    def lower_recovery_point(self, offset: int) -> None:
        """Make durable that recovery must not trust anything at or above offset."""
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self._on_truncation is not None:
                self._on_truncation(self)

    def delete_later(self, segment: Segment, now_ms: int) -> None:
        """Remove the files of a renamed segment after `file.delete.delay.ms`."""
        self.unsynced.forget(segment)
        self.deleted_segments.add(segment, now_ms + self._config.file_delete_delay_ms)

    def begin_swap(self, old_bases: Sequence[int], new_bases: Sequence[int]) -> Swap:
        """Replace segments by `.cleaned` ones: run the swap, then complete it."""
        return Swap(self, old_bases, new_bases)

    def continue_in(
        self, folder: str, segments: list[Segment], recovery_point: int, arrival: Arrival
    ) -> None:
        """Continue with copies of all segments in another folder; see `log_move` for durability."""
        self.unsynced.moved(arrival, folder, os.path.dirname(folder))
        self.dir = folder
        self.recovery_point = recovery_point
        self.epochs.changed = True
        self.set_segments(segments)

    def moved(self, folder: str) -> None:
        """Follow a rename of the folder."""
        self.dir = folder
        for segment in (*self.segments, *self.deleted_segments):
            segment.moved(folder)

    def close(self) -> None:
        """Close all files, without making anything durable."""
        self._active_file.trim()
        for segment in (*self.segments, *self.deleted_segments):
            segment.close()
