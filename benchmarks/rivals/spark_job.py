"""Runs one query over and over in a Spark session of its own; its answer is the last line."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Any

LOCAL = "local[2]"


@dataclass(frozen=True)
class Job:
    """What is read, how, and how often."""

    format: str
    mode: str
    options: dict[str, str]
    records: int
    value_bytes: int
    runs: int
    jars: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(job: Job) -> None:
    """Print the seconds of each run; a run that reads something else than is there ends it."""
    session = _session(job.jars)
    seconds = []
    for _ in range(job.runs):
        begun = time.perf_counter()
        count, size = _batch(session, job) if job.mode == "batch" else _stream(session, job)
        seconds.append(time.perf_counter() - begun)
        if (count, size) != (job.records, job.value_bytes):
            raise SystemExit(f"read {count} records of {size} bytes: {job}")
    session.stop()
    print(json.dumps({"seconds": seconds}))


def _session(jars: list[str]) -> Any:
    from pyspark.sql import SparkSession

    from headrace.spark import register

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": ":".join(jars),
    }
    builder = SparkSession.builder.master(LOCAL).appName("headrace bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session


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


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
