"""What a task does: fetches a range of a partition and gives it out as Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.client.wire.batch_reader import GONE, OffsetOutOfRange, RawReader
from headrace.client.wire.leaders import EARLIEST, Leaders
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.spark.errors import DataLoss, SourceUnreachable
from headrace.spark.source.decoder import Build, Unpacker, best_build, cuts
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.ranges import Range
from headrace.spark.worker_memory import settle

_log = logging.getLogger("headrace.spark")


def read_range(
    options: SourceOptions, columns: Sequence[str], wanted: Range, build: Build | None = None
) -> Iterator[Any]:
    """The records of a range as Arrow record batches, each good until the next is asked for.

    DataLoss if its beginning was deleted, or all of it.
    """
    build = build or best_build()
    unpacker = Unpacker()
    topic, partition, start, end = wanted
    with (
        options.connection.cluster(options.timeout_s) as cluster,
        RawReader(
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
                        for low, high in cuts(chunk, start, end):
                            batch = build(chunk, columns, topic, partition, low, high)
                            if batch.num_rows:
                                yield batch
                    # What was given out is not given out again if the rest is found deleted.
                    start = fetched.next_offset
                settle()
                return
            except OffsetOutOfRange as gone:
                begin = gone.log_start_offset
                if begin < 0:
                    place = (topic, partition)
                    begin = Leaders(cluster, [place]).offsets([place], EARLIEST).get(place, end)
                start = _after_loss(options, wanted, start, begin)
            except KafkaError as refusal:
                if refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise SourceUnreachable(f"topic {topic}: {refusal.message}") from None
                if refusal.code not in GONE:
                    raise
                tell_loss(options, f"{topic}/{partition} was deleted, offset {start} and on unread")
                return


def _after_loss(options: SourceOptions, wanted: Range, start: int, begin: int) -> int:
    """Where to go on after records were deleted, if the options allow it."""
    topic, partition, _, end = wanted
    if begin > start:
        loss = f"{topic}/{partition}: offsets {start} to {min(begin, end) - 1} were deleted unread"
    else:
        loss = f"{topic}/{partition}: offsets {start} to {end - 1} are beyond its end"
    tell_loss(options, loss)
    return begin if begin > start else end


def tell_loss(options: SourceOptions, loss: str) -> None:
    """Tell of a loss: DataLoss, or a warning if the options allow to go on."""
    if options.fails_on_data_loss:
        raise DataLoss(loss)
    _log.warning("%s; going on, as failOnDataLoss is false", loss)
