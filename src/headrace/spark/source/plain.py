"""Arrow batches by the simple decoder of the protocol: slow, and right for every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.protocol.batch import InvalidBatch
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record, decode_records
from headrace.spark.source.columns import arrow_schema
from headrace.spark.source.decoder import Part, Segment


def build(
    parts: Sequence[Part],
    columns: Sequence[str],
    topic: str,
    partition: int,
    first: int,
    end: int,
) -> Any:
    """An Arrow record batch of the records whose offsets are in [first, end)."""
    rows = [
        _row(record, topic, partition, is_append)
        for part in parts
        for segment in part.segments
        for record, is_append in _records(part, segment, end)
        if record.offset >= first
    ]
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_pylist(
        [{name: row[name] for name in columns} for row in rows], schema=schema
    )


def _records(part: Part, segment: Segment, end: int) -> list[tuple[Record, int]]:
    start, stop, count, base_offset, last_delta, base_ms, append_ms, is_append = segment
    records: list[tuple[Record, int]] = []
    try:
        for record in decode_records(
            bytes(part.buffer[start:stop]),
            count,
            base_offset,
            base_ms,
            append_ms if is_append else None,
        ):
            if record.offset - base_offset > last_delta:
                raise ProtocolError("a record's offset lies beyond its batch")
            if record.offset >= end:
                break
            records.append((record, is_append))
    except ProtocolError as error:
        raise InvalidBatch(str(error)) from error
    return records


def _row(record: Record, topic: str, partition: int, is_append: int) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": is_append,
        # As the official connector has it: no headers are null, not an empty list.
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }
