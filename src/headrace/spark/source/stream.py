"""The streaming reader: micro-batches from where the last one ended, as much as options admit."""

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
from headrace.spark.source.options import SourceOptions, for_stream
from headrace.spark.source.positions import LATEST, Offsets, from_json, to_json
from headrace.spark.source.ranges import admit, behind, plan, split, unknown_beginnings
from headrace.spark.source.reading import read_range, tell_loss

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION = True
except ImportError:
    HAS_ADMISSION = False

    # Spark 4.1 has no hooks for admission: the reader keeps its own cap.
    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the hook of Spark 4.2."""


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from headrace.client.wire.cluster import Cluster

_log = logging.getLogger("headrace.spark")

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver; `read` is what tasks do with a copy of it."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = for_stream(options)
        self._columns = tuple(columns)
        self._clock = clock
        self._opened: tuple[Cluster, Logs] | None = None
        self._target: Offsets | None = None
        # Kept, since Spark 4.1 asks for it only after the end of the first micro-batch.
        self._initial: Offsets | None = None
        # Where the last planned micro-batch ends: Spark 4.1 does not say where the next begins.
        self._begin: Offsets | None = None
        self._reached: Offsets = {}
        self._committed: Offsets | None = None
        self._latest: Offsets = {}
        self._last_trigger_s = clock()

    def __getstate__(self) -> dict[str, Any]:
        # Connections stay where they are.
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Json:
        """Where a new query begins."""
        if self._initial is None:
            logs = self._logs
            places = logs.places_at_first()
            self._initial = logs.resolve(self._options.start(LATEST), places, "startingOffsets")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a trigger takes, unless the trigger says otherwise (Spark 4.2)."""
        most = self._options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the whole query at what is there now (Spark 4.2)."""
        logs = self._logs
        self._target = logs.latest(logs.places())

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:
        """Where the next micro-batch ends; Spark 4.1 says neither start nor limit."""
        is_new = start is None and self._begin is None
        if is_new:
            # A new query on Spark 4.1, which asks for the beginning later: it is not to be later.
            begin = from_json(self.initialOffset())
        else:
            begin = from_json(start) if start is not None else dict(self._begin or {})
        logs = self._logs
        self._latest = logs.latest(logs.places(expected=begin))
        # What is to be continued is done, so this is progress even when nothing new has come.
        self._show_progress(begin)
        end = self._latest if self._target is None else self._target
        if not is_new:
            # With availableNow Spark 4.1 makes one micro-batch, which is to be all there is.
            new = end.keys() - begin.keys()
            end = self._admitted({**logs.earliest(new), **begin} if new else begin, end, limit)
        self._reached = end
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        """Where the logs end, with the lag behind it, for the query's progress (Spark 4.2)."""
        found: Json = to_json(self._latest)
        try:
            behind_by = measure(self._cluster, self._reached, self._latest, self._clock())
            return {**found, **report(behind_by)}
        except (OSError, KafkaError) as problem:
            # A query does not fail because nobody can say how far it is behind.
            _log.warning("the lag is not known: %s", problem)
            return found

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """One task for each part of the ranges from start to end; DataLoss as options say."""
        begin, stop = from_json(start), from_json(end)
        self._begin = dict(stop)
        # What was deleted after the end was found; a micro-batch that runs again has the same end.
        for topic, number in self._logs.gone(stop):
            begin.setdefault((topic, number), 0)
            del stop[topic, number]
        unknown = unknown_beginnings(begin, stop)
        earliest = self._logs.earliest(unknown) if unknown else {}
        ranges, losses = plan(begin, stop, earliest)
        for loss in losses:
            tell_loss(self._options, loss)
        tasks = split(ranges, self._options.records_per_task_max, self._options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task."""
        return read_range(self._options, self._columns, partition.value)

    def commit(self, end: Json) -> None:
        """Show progress to lag tools: the query has finished with what is before `end`."""
        self._show_progress(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._cluster.close()
            self._opened = None

    def _admitted(self, begin: Offsets, end: Offsets, limit: Any) -> Offsets:
        """Where a trigger ends that takes neither too little nor too much."""
        now_s = self._clock()
        least = self._options.records_per_trigger_min
        has_waited = now_s - self._last_trigger_s >= self._options.trigger_delay_s
        is_little = least is not None and behind(begin, end) < least
        if is_little and not has_waited and self._target is None:
            return {place: begin[place] for place in end if place in begin}
        self._last_trigger_s = now_s
        if limit is None:
            most = self._options.records_per_trigger_max
        else:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return end if most is None else admit(begin, end, most)

    def _show_progress(self, done: Mapping[tuple[str, int], int]) -> None:
        group = self._options.group
        if self._latest:
            # The others were deleted, and brokers take no offsets for them.
            done = {place: done[place] for place in done.keys() & self._latest.keys()}
        if group is None or not done or done == self._committed:
            return
        try:
            commit_offsets(self._cluster, group, done)
        except (OSError, KafkaError) as problem:
            if isinstance(problem, OSError) or problem.code.retriable:
                # The next commit says all that this one would have said.
                _log.warning("progress was not committed to group %s: %s", group, problem)
                return
            raise SourceUnreachable(
                f"group {group!r} does not take the progress: {problem.message} "
                "(hint: give the query a group that no consumer is a member of)"
            ) from None
        self._committed = dict(done)

    def _open(self) -> tuple[Cluster, Logs]:
        if self._opened is None:
            cluster = self._options.connection.cluster(self._options.timeout_s)
            self._opened = cluster, Logs(cluster, self._options)
        return self._opened

    @property
    def _cluster(self) -> Cluster:
        return self._open()[0]

    @property
    def _logs(self) -> Logs:
        return self._open()[1]
