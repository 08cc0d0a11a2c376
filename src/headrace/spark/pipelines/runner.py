"""Running a pipeline: its queries started, watched, started again after failures, and stopped."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.backoff import Backoff
from headrace.spark.pipelines.definitions import Pipeline
from headrace.spark.pipelines.homes import Home
from headrace.spark.pipelines.progress import (
    Ends,
    Progress,
    begins_and_ends,
    has_reached,
    read_progress,
    seconds_left,
)
from headrace.spark.pipelines.sinks import describe
from headrace.spark.pipelines.writing import Start, start_queries
from headrace.spark.sessions import activate
from headrace.spark.source.stream_reader import HAS_ADMISSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.spark.pipelines.windows import Window

LOOK_SECONDS = 0.2
STATE_SECONDS = 1.0
ERROR_CHARS_MAX = 2000
# A run that is to end gives up after so many failures without a batch between them.
FAILURES_MAX = 5

_log = logging.getLogger("headrace.spark")

OnProgress = Callable[[Progress], None]


class Runner:
    """Runs one version of a pipeline until it is stopped, or has read all if it is to end."""

    def __init__(
        self,
        pipeline: Pipeline,
        start: Start,
        home: Home,
        *,
        window: Window | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._start = start
        self._home = home
        self._window = window
        self._on_progress = on_progress
        # Called once, when there is an output to be seen.
        self.on_first_batch: Callable[[], None] | None = None
        self._stopping = threading.Event()
        self._backoff = Backoff()
        self._state: dict[str, Any] = {}
        self._batch = -1
        self._begins: Ends | None = None
        self._ends: Ends | None = None
        self._state_at_s = 0.0

    def request_stop(self) -> None:
        """Let `run` end soon; for another thread than the one that runs it."""
        self._stopping.set()

    def run(self, spark: SparkSession) -> None:
        """Run to the end; a failed query is started again, with longer and longer pauses.

        PipelineError if it cannot run at all, or a bounded run fails again and again. What was
        stopped or killed at any moment goes on where it was.
        """
        activate(spark)
        self._state = {
            "pid": os.getpid(),
            "started_ms": _now_ms(),
            "sources": [source.topic for source in self._pipeline.sources.values()],
            "sink": describe(self._pipeline.sink, self._pipeline.version),
            "checkpoint": self._start.checkpoint,
            "master": spark.sparkContext.master,
            "is_bounded": self._start.to_end,
            "restarts": 0,
            "error": None,
        }
        try:
            if self._start.to_end:
                topics = {each.topic for each in self._pipeline.sources.values() if not each.latest}
                settings = {"bootstrap.servers": self._start.bootstrap, **self._start.settings}
                self._begins, self._ends = begins_and_ends(settings, topics)
            end = self._repeat(spark)
        except BaseException as problem:
            self._tell("failed", error=str(problem)[:ERROR_CHARS_MAX])
            raise
        self._tell(end)

    def _repeat(self, spark: SparkSession) -> str:
        while not self._is_stopping():
            wait_s = self._closed_seconds()
            if wait_s:
                self._tell("waiting", opens_in_s=round(wait_s))
                self._stopping.wait(min(wait_s, STATE_SECONDS))
                continue
            self._tell("starting")
            try:
                end = self._once(spark)
            except PipelineError:
                raise
            except Exception as problem:
                if _is_gone(spark):
                    raise PipelineError(
                        "Spark's JVM has ended", "start it again: it goes on where it was"
                    ) from problem
                self._fail(problem)
                continue
            if end:
                return end
        return "stopped"

    def _once(self, spark: SparkSession) -> str:
        """One life of the queries; empty if they are to be started again later."""
        queries = start_queries(spark, self._pipeline, self._start)
        try:
            return self._watch(queries)
        finally:
            for query in queries if not _is_gone(spark) else ():
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
            self._stopping.wait(LOOK_SECONDS)
        return "stopped"

    def _report(self, queries: list[StreamingQuery]) -> None:
        said = queries[0].lastProgress
        if said is None:
            if time.monotonic() - self._state_at_s > STATE_SECONDS:
                self._tell("running")
            return
        progress = read_progress(said.json, self._begins, self._ends)
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
            self._tell("running")

    def _figures(self, progress: Progress) -> dict[str, Any]:
        figures = {**progress._asdict(), "error": None}
        left_s = seconds_left(progress)
        return figures if left_s is None else {**figures, "seconds_left": round(left_s, 1)}

    def _may_have_more(self, queries: list[StreamingQuery]) -> bool:
        """Whether a bounded run has ended with a batch that may not have been the last.

        Spark 4.1 ends after one batch, and our source gives it no more than its cap.
        """
        said = [query.lastProgress for query in queries]
        return not HAS_ADMISSION and any(each is not None and each.numInputRows for each in said)

    def _has_read_all(self, queries: list[StreamingQuery]) -> bool:
        """Whether a bounded run with a rate, which Spark does not know to end, is at its end."""
        if self._ends is None or self._start.per_second is None:
            return False
        # The second one looks for bad values, where values are typed.
        typed = {each.topic for each in self._pipeline.sources.values() if each.value is not None}
        parts = {topic: each for topic, each in self._ends.items() if topic in typed}
        said = [query.lastProgress for query in queries]
        return all(
            each is not None and has_reached(each.json, ends)
            for each, ends in zip(said, (self._ends, parts), strict=False)
        )

    def _fail(self, problem: Exception) -> None:
        from pyspark.errors import AnalysisException, IllegalArgumentException

        if isinstance(problem, AnalysisException | IllegalArgumentException):
            raise PipelineError(*_unfit(problem, self._start.connector)) from problem
        if self._start.to_end and self._backoff.failures >= FAILURES_MAX:
            raise PipelineError(
                f"{self._pipeline.name} failed {self._backoff.failures} times without a batch "
                f"between: {_words(problem)}"
            ) from problem
        wait_s = self._backoff.failed()
        _log.warning("%s failed, again in %.0f s: %s", self._pipeline.name, wait_s, _words(problem))
        self._state["restarts"] += 1
        self._tell("restarting", error=_words(problem))
        deadline_s = time.monotonic() + wait_s
        while not self._is_stopping() and (left_s := deadline_s - time.monotonic()) > 0:
            self._stopping.wait(min(left_s, LOOK_SECONDS))

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._home.is_asked_to_stop

    def _closed_seconds(self) -> float:
        """Seconds until it may run again, by the hours it may run in."""
        if self._window is None:
            return 0.0
        now = datetime.now()
        return 60 * self._window.wait_minutes(now.hour * 60 + now.minute + now.second / 60)

    def _tell(self, state: str, **more: Any) -> None:
        self._state_at_s = time.monotonic()
        self._state.update(more, state=state, updated_ms=_now_ms())
        self._home.write_state(self._state)


def _is_gone(spark: SparkSession) -> bool:
    """Whether the JVM that this process started has ended."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _now_ms() -> int:
    return round(time.time() * 1000)


def _words(problem: Exception) -> str:
    """What is wrong, without Spark's own long trace where the cause can be found in it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("headrace.spark.")]
    chosen = ours or [line for line in lines if "Exception: " in line or "Error: " in line]
    return (chosen or lines or [type(problem).__name__])[-1 if chosen else 0][:ERROR_CHARS_MAX]


def _unfit(problem: Exception, connector: str) -> tuple[str, str]:
    text = _words(problem)
    if connector == "kafka" and "kafka" in text.lower():
        return (
            f"Spark's own connector is not at hand: {text}",
            "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION",
        )
    return f"Spark refuses the pipeline: {text}", "its function and its schema have to fit"
