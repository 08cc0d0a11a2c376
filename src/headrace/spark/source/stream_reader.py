"""The stream reader: plans micro-batches, each from where the last one ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headrace.client.admin.groups import commit_offsets
from headrace.protocol.errors import KafkaError
from headrace.spark.errors import SourceUnreachable
from headrace.spark.source.lags import measure, report
from headrace.spark.source.logs import Logs
from headrace.spark.source.offset_ranges import (
    Offsets,
    admit,
    from_json,
    partitions_without_start,
    plan,
    records_between,
    split,
    to_json,
)
from headrace.spark.source.options import SourceOptions, for_stream
from headrace.spark.source.positions import LATEST

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION = True
except ImportError:
    HAS_ADMISSION = False

    # Spark 4.1 has no admission control, so the reader enforces its own cap.
    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for the hook of Spark 4.2."""


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


_log = logging.getLogger("headrace.spark")

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver; tasks call `read` on a copy of it."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = for_stream(options)
        self._columns = tuple(columns)
        self._clock = clock
        self._opened: Logs | None = None
        self._target: Offsets | None = None
        # Remembered, since Spark 4.1 asks for it only after the end of the first micro-batch.
        self._initial: Offsets | None = None
        # Where the last planned micro-batch ends: Spark 4.1 does not tell where the next begins.
        self._begin: Offsets | None = None
        self._reached: Offsets = {}
        self._committed: Offsets | None = None
        self._latest: Offsets = {}
        self._last_trigger_s = clock()

    def __getstate__(self) -> dict[str, Any]:
        # Connections cannot travel to tasks.
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Json:
        """Where a new query begins."""
        if self._initial is None:
            logs = self._logs
            start = self._options.start(LATEST)
            self._initial = logs.resolve(start, logs.initial_partitions(), "startingOffsets")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a trigger reads unless it sets its own limit (Spark 4.2)."""
        most = self._options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the whole query at the current end of the logs (Spark 4.2)."""
        logs = self._logs
        self._target = logs.latest(logs.current_partitions())

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:
        """Where the next micro-batch ends; Spark 4.1 gives neither start nor limit."""
        is_new = start is None and self._begin is None
        if is_new:
            # A new query on Spark 4.1, which asks for the beginning only later: fix it now.
            begin = from_json(self.initialOffset())
        else:
            begin = from_json(start) if start is not None else dict(self._begin or {})
        logs = self._logs
        self._latest = logs.latest(logs.current_partitions(expected=begin))
        # Everything before `begin` is done: that is progress even if nothing new has arrived.
        self._show_progress(begin)
        end = self._latest if self._target is None else self._target
        if not is_new:
            # A new query is not capped: with availableNow, Spark 4.1 makes one micro-batch only.
            new = end.keys() - begin.keys()
            end = self._admitted({**logs.earliest(new), **begin} if new else begin, end, limit)
        self._reached = end
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        """The ends of the logs and the lag, for the query's progress (Spark 4.2)."""
        found: Json = to_json(self._latest)
        try:
            behind_by = measure(self._logs.cluster, self._reached, self._latest, self._clock())
            return {**found, **report(behind_by)}
        except (OSError, KafkaError) as problem:
            # A query does not fail because its lag cannot be measured.
            _log.warning("the lag is unknown: %s", problem)
            return found

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """One task for each part of the ranges from start to end; DataLoss if records are gone."""
        begin, stop = from_json(start), from_json(end)
        self._begin = dict(stop)
        # Partitions deleted since the end was fixed; a micro-batch that reruns keeps its end.
        for topic, number in self._logs.gone(stop):
            begin.setdefault((topic, number), 0)
            del stop[topic, number]
        new = partitions_without_start(begin, stop)
        earliest = self._logs.earliest(new) if new else {}
        ranges, losses = plan(begin, stop, earliest)
        for loss in losses:
            self._options.report_loss(loss)
        tasks = split(ranges, self._options.records_per_task_max, self._options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task."""
        # Only tasks need the compiled loop; planners load this module as well.
        from headrace.spark.source.task import read_range

        return read_range(self._options, self._columns, partition.value)

    def commit(self, end: Json) -> None:
        """Show progress to lag tools: the query is done with everything before `end`."""
        self._show_progress(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.cluster.close()
            self._opened = None

    def _admitted(self, begin: Offsets, end: Offsets, limit: Any) -> Offsets:
        """Where a trigger ends that respects minOffsetsPerTrigger and its maximum."""
        now_s = self._clock()
        least = self._options.records_per_trigger_min
        has_waited = now_s - self._last_trigger_s >= self._options.trigger_delay_s
        is_too_little = least is not None and records_between(begin, end) < least
        if is_too_little and not has_waited and self._target is None:
            return {tp: begin[tp] for tp in end if tp in begin}
        self._last_trigger_s = now_s
        if limit is None:
            most = self._options.records_per_trigger_max
        else:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return end if most is None else admit(begin, end, most)

    def _show_progress(self, done: Mapping[tuple[str, int], int]) -> None:
        group = self._options.group
        if self._latest:
            # The other partitions were deleted, and brokers accept no offsets for them.
            done = {tp: done[tp] for tp in done.keys() & self._latest.keys()}
        if group is None or not done or done == self._committed:
            return
        try:
            commit_offsets(self._logs.cluster, group, done)
        except (OSError, KafkaError) as problem:
            if isinstance(problem, OSError) or problem.code.retriable:
                # The next commit includes this one.
                _log.warning("progress was not committed to group %s: %s", group, problem)
                return
            raise SourceUnreachable(
                f"progress cannot be committed to group {group!r}: {problem.message}",
                "give the query a group without members",
            ) from None
        self._committed = dict(done)

    @property
    def _logs(self) -> Logs:
        if self._opened is None:
            cluster = self._options.connection.cluster(self._options.timeout_s)
            self._opened = Logs(cluster, self._options)
        return self._opened
