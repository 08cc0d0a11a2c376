"""A task of the source: fetches a range of a partition, unpacks it and yields Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.client.wire.batch_reader import BatchReader, Fetched
from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.errors import GONE, OffsetOutOfRange
from headrace.client.wire.leaders import EARLIEST, Leaders
from headrace.protocol.batch import HEADER_BYTES, UNPACKED_BYTES_MAX, BatchHeader, InvalidBatch
from headrace.protocol.compression import Codec, CompressionError, decompress, decompress_into
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.primitives import Buffer
from headrace.spark.errors import SourceUnreachable
from headrace.spark.sessions import freeze_loaded_objects
from headrace.spark.source.decoder import (
    ArrowBuilder,
    BatchSpan,
    UnpackedBatches,
    best_builder,
    row_limited,
)
from headrace.spark.source.offset_ranges import OffsetRange
from headrace.spark.source.options import SourceOptions

CHUNK_BYTES_MAX = 8 << 20
"""An Arrow batch is yielded after this many unpacked bytes; one record batch may exceed it."""
RECORD_BYTES_MIN = 7
"""The length, attributes, time, offset, key, value and number of headers take a byte each."""


def read_range(
    options: SourceOptions,
    columns: Sequence[str],
    wanted: OffsetRange,
    build: ArrowBuilder | None = None,
) -> Iterator[Any]:
    """The records of a range as Arrow record batches, each valid until the next is asked for.

    DataLoss if its beginning, or all of it, was deleted.
    """
    build = build or best_builder()
    unpacker = Unpacker()
    topic, partition, start, end = wanted
    with (
        options.connection.cluster(options.timeout_s) as cluster,
        BatchReader(
            cluster,
            topic,
            partition,
            isolation=options.isolation,
            fetch_bytes_max=options.fetch_bytes_max,
            timeout_s=options.timeout_s,
        ) as reader,
    ):
        while start < end:
            try:
                for fetched in reader.fetch(start, end):
                    for chunk in unpacker.chunks(fetched):
                        for low, high in row_limited(chunk, start, end):
                            batch = build(chunk, columns, OffsetRange(topic, partition, low, high))
                            if batch.num_rows:
                                yield batch
                    # What was yielded is not yielded again if the rest turns out to be deleted.
                    start = fetched.next_offset
                freeze_loaded_objects()
                return
            except OffsetOutOfRange as gone:
                begin = gone.log_start_offset
                if begin < 0:
                    begin = _log_start(cluster, (topic, partition), end)
                start = _after_loss(options, wanted, start, begin)
            except KafkaError as refusal:
                if refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise SourceUnreachable(f"topic {topic}: {refusal.message}") from None
                if refusal.code not in GONE:
                    raise
                options.report_loss(f"{topic}/{partition} was deleted, unread from offset {start}")
                return


def _log_start(cluster: ClusterClient, tp: TopicPartition, end: int) -> int:
    """Where a partition begins; at the end of the range if it was deleted."""
    leaders = Leaders(cluster, [tp])
    found = leaders.offsets([tp], EARLIEST)
    if tp not in found and tp not in leaders.gone:
        # Without an answer, nothing is known to be lost.
        raise SourceUnreachable(f"the leader of {tp[0]}/{tp[1]} does not answer")
    return found.get(tp, end)


def _after_loss(options: SourceOptions, wanted: OffsetRange, start: int, begin: int) -> int:
    """Where to continue after records were deleted, if the options allow it."""
    topic, partition, _, end = wanted
    if begin > start:
        loss = f"{topic}/{partition}: offsets {start} to {min(begin, end) - 1} were deleted unread"
    else:
        loss = f"{topic}/{partition}: offsets {start} to {end - 1} are beyond its end"
    options.report_loss(loss)
    return begin if begin > start else end


class Unpacker:
    """Decompresses record batches into a buffer that it reuses.

    Allocating fresh memory would take longer than the decompression.
    """

    def __init__(self, chunk_bytes_max: int = CHUNK_BYTES_MAX) -> None:
        self._chunk_bytes_max = chunk_bytes_max
        self._buffer = bytearray(chunk_bytes_max)
        self._used = 0

    def chunks(self, fetched: Fetched) -> Iterator[list[UnpackedBatches]]:
        """The committed batches of a fetch response, in chunks worth an Arrow batch.

        A chunk is valid until the next is asked for. A damaged batch raises CorruptBatch, a
        malformed one InvalidBatch.
        """
        chunk: list[UnpackedBatches] = []
        chunk_bytes = self._used = 0
        for position, header in fetched.committed():
            unpacked = self._unpack(fetched.buffer, position, header)
            if unpacked is None:
                yield chunk
                chunk, chunk_bytes, self._used = [], 0, 0
                unpacked = self._unpack(fetched.buffer, position, header)
            assert unpacked is not None
            buffer, start, stop = unpacked
            if not chunk or chunk[-1].buffer is not buffer:
                chunk.append(UnpackedBatches(buffer, []))
            chunk[-1].spans.append(_span(start, stop, header))
            chunk_bytes += stop - start
            if chunk_bytes >= self._chunk_bytes_max:
                yield chunk
                chunk, chunk_bytes, self._used = [], 0, 0
        if chunk:
            yield chunk

    def _unpack(
        self, buffer: memoryview, position: int, header: BatchHeader
    ) -> tuple[Buffer, int, int] | None:
        """Where the records are; None if the buffer is full and has to be consumed first."""
        start, stop = position + HEADER_BYTES, position + header.size
        if header.codec == Codec.NONE:
            return buffer, start, stop
        packed = buffer[start:stop]
        try:
            if header.codec == Codec.SNAPPY:
                data = decompress(header.codec, packed, UNPACKED_BYTES_MAX)
                return data, 0, len(data)
            while (size := self._decompress(header.codec, packed)) is None:
                if self._used:
                    return None
                if len(self._buffer) >= UNPACKED_BYTES_MAX:
                    raise InvalidBatch(f"a batch unpacks to more than {UNPACKED_BYTES_MAX} bytes")
                self._buffer = bytearray(min(4 * len(self._buffer), UNPACKED_BYTES_MAX))
        except CompressionError as error:
            raise InvalidBatch(str(error)) from error
        start, self._used = self._used, self._used + size
        return self._buffer, start, self._used

    def _decompress(self, codec: int, packed: memoryview) -> int | None:
        return decompress_into(codec, packed, memoryview(self._buffer)[self._used :])


def _span(start: int, stop: int, header: BatchHeader) -> BatchSpan:
    # Memory is allocated for as many rows as the header claims, so the claim must be possible.
    if header.record_count > (stop - start) // RECORD_BYTES_MIN:
        raise InvalidBatch(f"{header.record_count} records do not fit in {stop - start} bytes")
    return (
        start,
        stop,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        int(header.log_append_time),
    )
