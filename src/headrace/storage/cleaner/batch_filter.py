"""What stays of a batch: the last record of each key; tombstones and markers for a while.

The rules are Kafka's. A tombstone, and a marker whose transaction has no data left, get a delete
horizon (KIP-534) when a pass first finds them with nothing left to delete: attribute bit 6, the
time in the base timestamp. A pass after the horizon drops them. The last batch of a producer stays,
if need be empty, since its sequence number is nowhere else in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from headrace.protocol.batch import BatchHeader
from headrace.protocol.control import ControlType
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.storage.cleaner.batches import emptied, payload_of, rebuilt
from headrace.storage.cleaner.offset_map import OffsetMap
from headrace.storage.cleaner.options import CleanOptions, CleanStats
from headrace.storage.cleaner.raw_records import RawRecord, raw_records
from headrace.storage.cleaner.transactions import CleanedTransactions
from headrace.storage.log.txn_index import AbortedTxn

_control_key = Struct(">hh")


class BatchFilter:
    """Decides batch by batch, in offset order; `on_aborted` gets the index rows that stay."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        options: CleanOptions,
        stats: CleanStats,
        on_aborted: Callable[[AbortedTxn], None],
    ):
        self._offsets = offsets
        self._transactions = transactions
        self._options = options
        self._stats = stats
        self._on_aborted = on_aborted

    def apply(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        """The bytes to keep: the batch itself, a smaller one, an empty one, or None."""
        if header.is_control:
            kept = self._apply_to_control(batch, header)
        else:
            kept = self._apply_to_data(batch, header)
        if kept is not None:
            self._stats.bytes_kept += len(kept)
        return kept

    def _apply_to_control(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        try:
            payload = payload_of(batch, header, self._options.unpacked_bytes_max)
            records = list(raw_records(payload, header.record_count))
            spent = self._is_spent(header, records)
        except ValueError:
            return self._malformed(batch, header)
        self._stats.records_read += len(records)
        if header.last_offset > self._offsets.latest_offset:
            self._stats.records_kept += len(records)
            return batch
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and horizon_ms <= self._options.now_ms
        if not records or (spent and expired):
            return self._empty(batch, header)
        self._stats.records_kept += len(records)
        if spent and horizon_ms is None:
            return rebuilt(batch, header, payload, records, self._new_horizon_ms())
        return batch

    def _apply_to_data(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        stats = self._stats
        stats.records_read += header.record_count
        aborted = header.is_transactional and self._transactions.on_data(
            header.producer_id, header.last_offset
        )
        if header.last_offset > self._offsets.latest_offset:
            stats.records_kept += header.record_count
            return batch
        if aborted or header.record_count == 0:
            return self._empty(batch, header)
        try:
            payload = payload_of(batch, header, self._options.unpacked_bytes_max)
            kept = self._kept_records(payload, header)
        except ValueError:
            return self._malformed(batch, header)
        if not kept:
            return self._empty(batch, header)
        stats.records_kept += len(kept)
        needs_horizon = header.delete_horizon_ms is None and not all(
            record.has_value for record in kept
        )
        if needs_horizon:
            return rebuilt(batch, header, payload, kept, self._new_horizon_ms())
        if len(kept) == header.record_count:
            return batch
        return rebuilt(batch, header, payload, kept, None)

    def _kept_records(self, payload: bytes, header: BatchHeader) -> list[RawRecord]:
        horizon_ms = header.delete_horizon_ms
        keep_tombstones = horizon_ms is None or self._options.now_ms < horizon_ms
        base_offset = header.base_offset
        latest_of = self._offsets.get
        kept = []
        keyless = 0
        for record in raw_records(payload, header.record_count):
            if record.key is None:
                keyless += 1
            elif (record.has_value or keep_tombstones) and (
                base_offset + record.offset_delta >= latest_of(record.key)
            ):
                kept.append(record)
        self._stats.keyless_records += keyless
        return kept

    def _is_spent(self, header: BatchHeader, records: list[RawRecord]) -> bool:
        """Note a marker; True when no data of its transaction is left before it."""
        if not records:
            return True
        key = records[0].key
        if key is None or len(key) < _control_key.size:
            raise ProtocolError("a control record has no type")
        _, kind = _control_key.unpack_from(key)
        if kind == ControlType.COMMIT:
            return self._transactions.on_commit(header.producer_id, header.last_offset)
        if kind == ControlType.ABORT:
            spent, row = self._transactions.on_abort(header.producer_id, header.last_offset)
            if row is not None:
                self._on_aborted(row)
            return spent
        return False

    def _empty(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        """None, or a batch without records where one must stay."""
        # The end of the range stays too, so that the log alone gives the next offset.
        if header.next_offset == self._options.first_uncleanable_offset or self._is_last_of(header):
            return emptied(batch, header)
        return None

    def _is_last_of(self, header: BatchHeader) -> bool:
        last = self._options.last_records.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        # Only a marker is left of this producer: it has the epoch that fences zombies.
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _malformed(self, batch: memoryview, header: BatchHeader) -> Buffer:
        self._stats.malformed_batches += 1
        self._stats.records_kept += header.record_count
        return batch

    def _new_horizon_ms(self) -> int:
        return self._options.now_ms + self._options.delete_retention_ms
