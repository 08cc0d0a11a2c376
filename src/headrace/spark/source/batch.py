"""The batch reader: from one position to another, both fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.errors import DataLoss
from headrace.spark.source.logs import Logs
from headrace.spark.source.options import SourceOptions, for_batch
from headrace.spark.source.positions import EARLIEST, LATEST, Position
from headrace.spark.source.ranges import Range, split
from headrace.spark.source.reading import read_range


class BatchReader(DataSourceReader):
    """Reads what is there, and no more."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = for_batch(options)
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each part of the partitions' ranges."""
        options = self._options
        with options.connection.cluster(options.timeout_s) as cluster:
            logs = Logs(cluster, options)
            places = logs.places_at_first()
            start = logs.resolve(options.start(EARLIEST), places, "startingOffsets")
            end = logs.resolve(options.ending or Position(LATEST), places, "endingOffsets")
            latest = logs.latest(places)
        for option, given in (("startingOffsets", start), ("endingOffsets", end)):
            beyond = [place for place in places if given[place] > latest[place]]
            if beyond and options.fails_on_data_loss:
                topic, partition = beyond[0]
                raise DataLoss(
                    f"{option}: {topic}/{partition} ends at {latest[topic, partition]}, "
                    f"before {given[topic, partition]}"
                )
        ranges = [
            Range(
                topic, number, start[topic, number], min(end[topic, number], latest[topic, number])
            )
            for topic, number in places
        ]
        tasks = split(ranges, options.records_per_task_max, options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task."""
        # Spark runs one task without a value where there are none.
        if partition.value is None:
            return iter(())
        return read_range(self._options, self._columns, partition.value)
