"""The batch reader: from one position to another, both fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.errors import DataLoss
from headrace.spark.source.logs import Logs
from headrace.spark.source.offset_ranges import OffsetRange, split
from headrace.spark.source.options import SourceOptions, for_batch
from headrace.spark.source.positions import EARLIEST, LATEST, Position


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned, and no more."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = for_batch(options)
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each part of the partitions' ranges."""
        options = self._options
        with options.connection.cluster(options.timeout_s) as cluster:
            logs = Logs(cluster, options)
            partitions = logs.initial_partitions()
            start = logs.resolve(options.start(EARLIEST), partitions, "startingOffsets")
            end = logs.resolve(options.ending or Position(LATEST), partitions, "endingOffsets")
            latest = logs.latest(partitions)
        for option, given in (("startingOffsets", start), ("endingOffsets", end)):
            beyond = [tp for tp in partitions if given[tp] > latest[tp]]
            if beyond and options.fails_on_data_loss:
                topic, partition = beyond[0]
                raise DataLoss(
                    f"{option}: {topic}/{partition} ends at {latest[topic, partition]}, "
                    f"before {given[topic, partition]}"
                )
        ranges = [OffsetRange(*tp, start[tp], min(end[tp], latest[tp])) for tp in partitions]
        tasks = split(ranges, options.records_per_task_max, options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task."""
        # Where there are no tasks, Spark runs one without a value.
        if partition.value is None:
            return iter(())
        # Only tasks need the compiled loop; planners load this module as well.
        from headrace.spark.source.task import read_range

        return read_range(self._options, self._columns, partition.value)
