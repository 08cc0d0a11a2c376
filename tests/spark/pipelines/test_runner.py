"""A running pipeline keeps to its hours and to its rate."""

from __future__ import annotations

import threading
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.client.kafkas import Kafka
from tests.spark.runs import make_runner
from tests.waiting import wait_until

from headrace.spark import Pipeline, pipeline, register
from headrace.spark.pipelines.pacing import Window
from headrace.spark.pipelines.progress import Progress
from headrace.spark.pipelines.queries import RATE_TRIGGER_SECONDS
from headrace.spark.source.stream_reader import HAS_ADMISSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATE = 4
RECORDS = 5 * RATE


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def copy(source: str, sink: str, name: str) -> Pipeline:
    def copied(records: DataFrame) -> DataFrame:
        return records.select("value")

    return pipeline(source=source, sink=sink, tasks=1, name=name)(copied)


def is_active(spark: SparkSession, name: str) -> bool:
    return name in [query.name for query in spark.streams.active]


class Clock:
    """A clock that is set by hand."""

    def __init__(self, hour: int) -> None:
        self.hour = hour

    def __call__(self) -> datetime:
        return datetime(2026, 1, 2, self.hour)


def test_a_running_pipeline_pauses_when_its_window_closes_and_goes_on_when_it_opens(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    kafka = headrace_kafka
    source, sink = kafka.topic("hours"), kafka.topic("hours-out")
    made, clock = copy(source, sink, "in-hours"), Clock(hour=2)
    window = Window.parse("01:00-05:00")
    runner, folder = make_runner(kafka, made, tmp_path, window=window, clock=clock)
    kafka.fill(source, 3, word="night")
    with folder.locked():
        running = threading.Thread(target=runner.run, args=(spark,))
        running.start()
        try:
            assert len(kafka.read(sink, 3)) == 3
            wait_until(lambda: folder.state()["state"] == "running")
            assert is_active(spark, made.name)
            clock.hour = 6
            wait_until(lambda: folder.state()["state"] == "waiting")
            assert not is_active(spark, made.name)
            assert folder.state()["opens_in_s"] == 19 * 3600
            kafka.fill(source, 3, word="day")
            # It has looked at the clock again since then, and not gone on.
            known_ms = folder.state()["updated_ms"]
            wait_until(lambda: folder.state()["updated_ms"] > known_ms)
            assert folder.state()["state"] == "waiting"
            assert not is_active(spark, made.name)
            clock.hour = 1
            words = [it.value() for it in kafka.read(sink, 6)]
            wait_until(lambda: folder.state()["state"] == "running")
        finally:
            runner.request_stop()
            running.join(60)
    assert not running.is_alive()
    assert sorted(words) == [b"day0", b"day1", b"day2", b"night0", b"night1", b"night2"]
    assert folder.state()["restarts"] == 0


@pytest.mark.skipif(not HAS_ADMISSION, reason="Spark 4.1 does not limit the first batch")
def test_a_rate_is_not_exceeded_over_any_stretch_of_a_run(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    kafka = headrace_kafka
    source, sink = kafka.topic("rate"), kafka.topic("rate-out")
    made = copy(source, sink, "at-a-rate")
    kafka.fill(source, RECORDS)
    batches: dict[int, tuple[float, int]] = {}

    def note(_: Progress) -> None:
        [query] = [query for query in spark.streams.active if query.name == made.name]
        for report in query.recentProgress:
            if report.numInputRows:
                begun = datetime.fromisoformat(report.timestamp).timestamp()
                batches[report.batchId] = (begun, report.numInputRows)

    runner, folder = make_runner(
        kafka, made, tmp_path, on_progress=note, to_end=True, records_per_s=RATE
    )
    with folder.locked():
        runner.run(spark)
    assert len(kafka.read(sink, RECORDS)) == RECORDS
    taken = sorted(batches.values())
    assert sum(rows for _, rows in taken) == RECORDS
    assert max(rows for _, rows in taken) <= RATE * RATE_TRIGGER_SECONDS
    # Spark begins batches at whole intervals of its clock, so the first may be cut short.
    for first, last in combinations(range(len(taken)), 2):
        seconds = taken[last][0] - taken[first][0]
        between = sum(rows for _, rows in taken[first:last])
        assert between <= RATE * (seconds + RATE_TRIGGER_SECONDS)
