"""Runs a pipeline: starts its queries, watches them, restarts them after failures, stops them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.definitions import Pipeline
from headrace.spark.pipelines.pacing import Backoff
from headrace.spark.pipelines.progress import (
    Progress,
    begins_and_ends,
    has_reached,
    read_progress,
    seconds_left,
)
from headrace.spark.pipelines.queries import QuerySettings, start_queries
from headrace.spark.pipelines.sinks import describe
from headrace.spark.pipelines.version_folder import VersionFolder
from headrace.spark.sessions import activate
from headrace.spark.source.offset_ranges import Offsets
from headrace.spark.source.stream_reader import HAS_ADMISSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.spark.pipelines.pacing import Window

POLL_SECONDS = 0.2
STATE_SECONDS = 1.0
ERROR_CHARS_MAX = 2000
# A bounded run gives up after this many failures without a batch between them.
FAILURES_MAX = 5

_log = logging.getLogger("headrace.spark")

OnProgress = Callable[[Progress], None]


class Runner:
    """Runs one version of a pipeline until it is stopped, or until the end of a bounded run."""

    def __init__(
        self,
        pipeline: Pipeline,
        settings: QuerySettings,
        folder: VersionFolder,
        *,
        window: Window | None = None,
        on_progress: OnProgress | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._folder = folder
        self._window = window
        self._clock = clock
        self._on_progress = on_progress
        # Called once, when the first batch is written.
        self.on_first_batch: Callable[[], None] | None = None
        self._stopping = threading.Event()
        self._backoff = Backoff()
        self._state: dict[str, Any] = {}
        self._batch = -1
        self._begins: Offsets | None = None
        self._ends: Offsets | None = None
        self._state_at_s = 0.0

    def request_stop(self) -> None:
        """Let `run` end soon; called from another thread."""
        self._stopping.set()

    def run(self, spark: SparkSession) -> None:
        """Run to the end; a failed query is restarted after a growing pause.

        PipelineError if it cannot run at all, or if a bounded run keeps failing. A run that was
        stopped or killed at any moment continues where it was.
        """
        activate(spark)
        self._state = {
            "pid": os.getpid(),
            "started_ms": _now_ms(),
            "sources": [source.topic for source in self._pipeline.sources.values()],
            "sink": describe(self._pipeline.sink, self._pipeline.version),
            "checkpoint": self._settings.checkpoint,
            "master": spark.sparkContext.master,
            "is_bounded": self._settings.to_end,
            "restarts": 0,
            "error": None,
        }
        try:
            if self._settings.to_end:
                topics = {each.topic for each in self._pipeline.sources.values() if not each.latest}
                settings = {"bootstrap.servers": self._settings.bootstrap, **self._settings.client}
                self._begins, self._ends = begins_and_ends(settings, topics)
            end = self._run_repeatedly(spark)
        except BaseException as problem:
            self._write_state("failed", error=str(problem)[:ERROR_CHARS_MAX])
            raise
        self._write_state(end)

    def _run_repeatedly(self, spark: SparkSession) -> str:
        while not self._is_stopping():
            wait_s = self._closed_seconds()
            if wait_s:
                self._write_state("waiting", opens_in_s=round(wait_s))
                self._stopping.wait(min(wait_s, STATE_SECONDS))
                continue
            self._write_state("starting")
            try:
                end = self._run_once(spark)
            except PipelineError:
                raise
            except Exception as problem:
                if _has_ended(spark):
                    raise PipelineError(
                        "Spark's JVM has ended", "run it again: it continues where it was"
                    ) from problem
                self._handle_failure(problem)
                continue
            if end:
                return end
        return "stopped"

    def _run_once(self, spark: SparkSession) -> str:
        """Start the queries once; the final state, or empty if they have to be started again."""
        queries = start_queries(spark, self._pipeline, self._settings)
        try:
            return self._watch(queries)
        finally:
            for query in queries if not _has_ended(spark) else ():
                query.stop()

    def _watch(self, queries: list[StreamingQuery]) -> str:
        while not self._is_stopping():
            ended = [query for query in queries if not query.isActive]
            for query in ended:
                if (problem := query.exception()) is not None:
                    raise problem
            self._report(queries)
            if len(ended) == len(queries):
                return "" if self._may_have_more(queries) else "finished"
            if self._has_read_all(queries):
                return "finished"
            if self._closed_seconds():
                return ""
            self._stopping.wait(POLL_SECONDS)
        return "stopped"

    def _report(self, queries: list[StreamingQuery]) -> None:
        report = queries[0].lastProgress
        if report is None:
            if time.monotonic() - self._state_at_s > STATE_SECONDS:
                self._write_state("running")
            return
        progress = read_progress(report.json, self._begins, self._ends)
        if progress.batch > self._batch:
            self._batch = progress.batch
            self._backoff.succeeded()
            if self.on_first_batch:
                self.on_first_batch()
                self.on_first_batch = None
            if self._on_progress:
                self._on_progress(progress)
        self._state.update(self._figures(progress))
        if time.monotonic() - self._state_at_s > STATE_SECONDS:
            self._write_state("running")

    def _figures(self, progress: Progress) -> dict[str, Any]:
        figures = {**progress._asdict(), "error": None}
        left_s = seconds_left(progress)
        return figures if left_s is None else {**figures, "seconds_left": round(left_s, 1)}

    def _may_have_more(self, queries: list[StreamingQuery]) -> bool:
        """Whether the last batch of a bounded run may have left records behind.

        Spark 4.1 ends after one batch, which our source limits to its cap.
        """
        reports = [query.lastProgress for query in queries]
        return not HAS_ADMISSION and any(each is not None and each.numInputRows for each in reports)

    def _has_read_all(self, queries: list[StreamingQuery]) -> bool:
        """Whether a bounded run with a rate, which Spark itself would not end, is at its end."""
        if self._ends is None or self._settings.records_per_s is None:
            return False
        # The second query, for dead letters, reads only sources with typed values.
        typed = {each.topic for each in self._pipeline.sources.values() if each.value is not None}
        typed_ends = {tp: end for tp, end in self._ends.items() if tp[0] in typed}
        reports = [query.lastProgress for query in queries]
        return all(
            each is not None and has_reached(each.json, ends)
            for each, ends in zip(reports, (self._ends, typed_ends), strict=False)
        )

    def _handle_failure(self, problem: Exception) -> None:
        from pyspark.errors import AnalysisException, IllegalArgumentException

        if isinstance(problem, AnalysisException | IllegalArgumentException):
            raise PipelineError(*_refusal(problem, self._settings.connector)) from problem
        if self._settings.to_end and self._backoff.failures >= FAILURES_MAX:
            raise PipelineError(
                f"{self._pipeline.name} failed {self._backoff.failures} times without a batch in "
                f"between: {_summary(problem)}"
            ) from problem
        wait_s = self._backoff.failed()
        _log.warning(
            "%s failed, restarting in %.0f s: %s", self._pipeline.name, wait_s, _summary(problem)
        )
        self._state["restarts"] += 1
        self._write_state("restarting", error=_summary(problem))
        deadline_s = time.monotonic() + wait_s
        while not self._is_stopping() and (left_s := deadline_s - time.monotonic()) > 0:
            self._stopping.wait(min(left_s, POLL_SECONDS))

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._folder.is_asked_to_stop

    def _closed_seconds(self) -> float:
        """Seconds until the window opens; 0 while it is open, or without a window."""
        if self._window is None:
            return 0.0
        now = self._clock()
        return 60 * self._window.wait_minutes(now.hour * 60 + now.minute + now.second / 60)

    def _write_state(self, state: str, **more: Any) -> None:
        self._state_at_s = time.monotonic()
        self._state.update(more, state=state, updated_ms=_now_ms())
        self._folder.write_state(self._state)


def _has_ended(spark: SparkSession) -> bool:
    """Whether the JVM that this process started has ended."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _now_ms() -> int:
    return round(time.time() * 1000)


def _summary(problem: Exception) -> str:
    """The cause of an error in one line, without Spark's stack trace."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("headrace.spark.")]
    chosen = ours or [line for line in lines if "Exception: " in line or "Error: " in line]
    return (chosen or lines or [type(problem).__name__])[-1 if chosen else 0][:ERROR_CHARS_MAX]


def _refusal(problem: Exception, connector: str) -> tuple[str, str]:
    text = _summary(problem)
    if connector == "kafka" and "kafka" in text.lower():
        return (
            f"Spark's own connector is not installed: {text}",
            "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION",
        )
    return f"Spark refuses the pipeline: {text}", "check its function and its schema"
