"""Running pipelines within a test, on its own session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka

from headrace.spark.pipelines.definitions import Pipeline
from headrace.spark.pipelines.outputs import make_topics
from headrace.spark.pipelines.queries import QuerySettings
from headrace.spark.pipelines.runner import OnProgress, Runner
from headrace.spark.pipelines.version_folder import VersionFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.pacing import Window


def run_pipeline(
    spark: SparkSession, kafka: Kafka, pipeline: Pipeline, home: Path, **settings: Any
) -> dict[str, Any]:
    """Run a pipeline over what is there now; returns its state afterwards."""
    runner, folder = make_runner(kafka, pipeline, home, **{"to_end": True, **settings})
    with folder.locked():
        runner.run(spark)
    return folder.state()


def make_runner(
    kafka: Kafka,
    pipeline: Pipeline,
    home: Path,
    *,
    window: Window | None = None,
    on_progress: OnProgress | None = None,
    clock: Callable[[], datetime] = datetime.now,
    **settings: Any,
) -> tuple[Runner, VersionFolder]:
    """A runner, and the folder that is locked while it runs."""
    make_topics(pipeline, {"bootstrap.servers": kafka.bootstrap})
    folder = VersionFolder(home, pipeline.name, pipeline.version)
    queries = QuerySettings(kafka.bootstrap, folder.checkpoint, **settings)
    runner = Runner(pipeline, queries, folder, window=window, on_progress=on_progress, clock=clock)
    return runner, folder


def make_topic(kafka: Kafka, name: str, **config: str) -> None:
    """Make a topic of just this name."""
    admin = AdminClient(kafka.quiet)
    made = admin.create_topics([NewTopic(name, 2, 1, config=config)])
    made[name].result(TIMEOUT_SECONDS)


def send(kafka: Kafka, topic: str, rows: Iterable[Any], key: str | None = None) -> None:
    """Send rows: dicts as JSON, others as they are; `key` names the field that is the key."""
    producer = Producer({**kafka.quiet, "linger.ms": 0, "partitioner": "murmur2_random"})
    for row in rows:
        value = json.dumps(row) if isinstance(row, dict) else row
        producer.produce(topic, value, str(row[key]) if key else None)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def objects(kafka: Kafka, topic: str, count: int) -> list[dict[str, Any]]:
    """The first records of a topic as JSON objects, in the order of their text."""
    found = [json.loads(it.value()) for it in kafka.read(topic, count)]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))
