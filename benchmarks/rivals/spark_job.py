"""Runs one query over and over in a Spark session of its own; its answer is the last line."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from benchmarks.spark_topics import create_topic

LOCAL = "local[2]"
# Of the rows that are written: four micro-batches, with one file for each core.
_FILES = 8
_FILES_PER_BATCH = 2


@dataclass(frozen=True)
class Job:
    """What is read or written, how, and how often."""

    format: str
    mode: str
    options: dict[str, str]
    records: int
    value_bytes: int
    runs: int
    jars: list[str] = field(default_factory=list)


def main(job: Job) -> None:
    """Print the seconds of each run; a run that reads something else than is there ends it."""
    session = _session(job.jars)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        if job.mode == "sink":
            _rows(session, job).write.parquet(f"{folder}/rows")
        for _ in range(job.runs):
            if job.mode == "sink":
                took, (count, size) = _sink(session, job, f"{folder}/rows")
            else:
                begun = time.perf_counter()
                count, size = _batch(session, job) if job.mode == "batch" else _stream(session, job)
                took = time.perf_counter() - begun
            seconds.append(took)
            if (count, size) != (job.records, job.value_bytes):
                raise SystemExit(f"read {count} records of {size} bytes: {job}")
        session.stop()
    print(json.dumps({"seconds": seconds}))


def _session(jars: list[str]) -> Any:
    from headrace.spark import open_session

    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": ":".join(jars),
    }
    return open_session("bench", LOCAL, settings)


def _sums(frame: Any) -> tuple[int, int]:
    [row] = frame.selectExpr("count(*) AS count", "sum(length(value)) AS size").collect()
    return row["count"], row["size"] or 0


def _batch(session: Any, job: Job) -> tuple[int, int]:
    return _sums(session.read.format(job.format).options(**job.options).load())


def _stream(session: Any, job: Job) -> tuple[int, int]:
    found: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            session.readStream.format(job.format)
            .options(**job.options)
            .load()
            .writeStream.foreachBatch(lambda frame, _: found.append(_sums(frame)))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return sum(count for count, _ in found), sum(size for _, size in found)


def _rows(session: Any, job: Job) -> Any:
    """Rows with keys and values of a size, to be written to a topic."""
    each = job.value_bytes // job.records
    return session.range(0, job.records, 1, _FILES).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        f"CAST(lpad(CAST(id AS STRING), {each}, md5(CAST(id AS STRING))) AS BINARY) AS value",
    )


def _sink(session: Any, job: Job, rows: str) -> tuple[float, tuple[int, int]]:
    """Write a stream of rows into a new topic: how long it took, and what is in the topic then.

    The rows come from files, which cost little. The connector's sink writes at least once; ours
    exactly once, with its rows parted among tasks by key as that needs.
    """
    from headrace.spark import exactly_once

    topic = f"written-{uuid.uuid4().hex[:8]}"
    bootstrap = job.options["kafka.bootstrap.servers"]
    create_topic(bootstrap, topic)
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = session.readStream.schema("key BINARY, value BINARY")
        stream = stream.option("maxFilesPerTrigger", _FILES_PER_BATCH).parquet(rows)
        options = {**job.options, "topic": topic}
        begun = time.perf_counter()
        if job.format == "headrace":
            writer = exactly_once(
                stream, tasks=2, key="key", checkpoint=checkpoint, options=options
            )
        else:
            writer = stream.writeStream.format(job.format).options(**options)
            writer = writer.option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        took = time.perf_counter() - begun
    found = session.read.format("headrace").option("subscribe", topic)
    return took, _sums(found.option("bootstrap", bootstrap).option("columns", "value").load())


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
