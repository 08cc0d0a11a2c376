"""`headrace bench broker`: the data path, starts, idle connections and Java's own tools."""

from __future__ import annotations

import time

from benchmarks import java_tools, process
from benchmarks.bench import Bench
from benchmarks.figures import (
    CPU_MB,
    CPU_REQ,
    MB_S,
    MEMORY,
    MEMORY_PSS,
    REQ_S,
    Figure,
    Load,
    bounded,
    cost,
    rate,
)
from benchmarks.generator import Generator
from benchmarks.peers import Running
from benchmarks.trial import MEGABYTE, Trial

_MANY_PARTITIONS = 1000
_IDLE_CONNECTIONS = 5000

_MB_BATCH = {"records": 1000, "size": 1000, "connections": 4, "in_flight": 5}
_SMALL_BATCH = {"records": 100, "size": 100, "connections": 4, "in_flight": 5}
_SINGLE = {"records": 1, "size": 100, "connections": 16, "in_flight": 5}
_ONE_AT_A_TIME = {"records": 1, "size": 100, "connections": 1, "in_flight": 1}

LOADS = (
    Load(
        "produce-1mb",
        "produce",
        {**_MB_BATCH, "acks": 1},
        {
            MB_S: rate("produce-1mb", "produce, 1 MB batches, acks=1", "MB/s", 1.5),
            CPU_MB: cost("produce-1mb-cpu", "  broker CPU per MB", "ms", 0.5),
        },
    ),
    Load(
        "produce-100x100",
        "produce",
        {**_SMALL_BATCH, "acks": 1},
        {
            REQ_S: rate("produce-100x100", "produce, 100 x 100 B batches, acks=1", "req/s", 2.5),
            CPU_REQ: cost("produce-100x100-cpu", "  broker CPU per request", "µs", 0.5),
        },
    ),
    Load(
        "produce-single",
        "produce",
        {**_SINGLE, "acks": 1},
        {
            REQ_S: rate(
                "produce-single", "produce, single 100 B, 16 connections, acks=1", "req/s", 1.5
            ),
            CPU_REQ: cost("produce-single-cpu", "  broker CPU per request", "µs", 0.5),
        },
    ),
    Load(
        "latency",
        "produce",
        {**_ONE_AT_A_TIME, "acks": 1},
        {
            "p50": cost("latency-p50", "one request at a time, acks=1, p50", "ms", 0.5),
            "p99": cost("latency-p99", "  p99", "ms", 0.5),
            "p999": cost("latency-p999", "  p99.9", "ms"),
            CPU_REQ: cost("latency-cpu", "  broker CPU per request", "µs", 0.5),
        },
    ),
    Load(
        "fetch-1mb",
        "fetch",
        {"connections": 4, "bytes": 1 << 20},
        {
            MB_S: rate("fetch-1mb", "fetch, 1 MB, 4 connections", "MB/s", 1.3),
            CPU_MB: cost("fetch-1mb-cpu", "  broker CPU per MB", "ms", 0.5),
        },
        fill_bytes=400_000_000,
    ),
    Load(
        "produce-1mb-all",
        "produce",
        {**_MB_BATCH, "acks": -1},
        {
            MB_S: rate("produce-1mb-all", "produce, 1 MB batches, acks=all", "MB/s", 1.0),
            CPU_MB: cost("produce-1mb-all-cpu", "  broker CPU per MB", "ms"),
        },
    ),
    Load(
        "produce-single-all",
        "produce",
        {**_SINGLE, "acks": -1},
        {
            REQ_S: rate("produce-single-all", "produce, single 100 B, acks=all", "req/s"),
            CPU_REQ: cost("produce-single-all-cpu", "  broker CPU per request", "µs"),
        },
    ),
    Load(
        "produce-idempotent",
        "produce",
        {**_SINGLE, "acks": -1, "idempotent": True},
        {
            REQ_S: rate(
                "produce-idempotent", "produce, single 100 B, idempotent, acks=all", "req/s", None
            ),
        },
    ),
    Load(
        "latency-all",
        "produce",
        {**_ONE_AT_A_TIME, "acks": -1},
        {
            "p50": cost("latency-all-p50", "one request at a time, acks=all, p50", "ms"),
            "p99": cost("latency-all-p99", "  p99", "ms"),
        },
    ),
)

JAVA_PRODUCE = rate(
    "java-produce", "Java ProducerPerformance, 1 KB, its defaults (acks=all)", "MB/s"
)
JAVA_PRODUCE_P99 = cost("java-produce-p99", "  p99", "ms")
JAVA_CONSUME = rate("java-consume", "Java ConsumerPerformance", "MB/s")
START_EMPTY = bounded("start-empty", "start to first answer, empty folder", "s", 0.5)
START_FULL = bounded("start-1000", "start to 1,000 partitions served, after a clean stop", "s", 2.0)
CREATE_TOPIC = bounded("create-1000", "create a topic of 1,000 partitions", "s")
IDLE = bounded("idle-5000", "resident memory with 5,000 idle connections", "MB", 250)

FIGURES: tuple[Figure, ...] = (
    *(figure for load in LOADS for figure in load.figures.values()),
    MEMORY,
    MEMORY_PSS,
    START_EMPTY,
    START_FULL,
    CREATE_TOPIC,
    IDLE,
    JAVA_PRODUCE,
    JAVA_PRODUCE_P99,
    JAVA_CONSUME,
)


class BrokerTrial(Trial):
    """Measures what a broker does for producers and consumers without groups."""

    def round(self) -> None:
        if {"starts", "idle"} & set(self.parts):
            self.fresh(self._starts_and_idle)
        loads = [load for load in LOADS if load.name in self.parts]
        if loads or "java" in self.parts:
            self.fresh(lambda: self._loads(loads))

    def _loads(self, loads: list[Load]) -> None:
        running, generator, _ = self.start()
        self.run_loads(running, generator, loads)
        if "java" in self.parts:
            self.say("Java perf tools")
            self._java(running, generator)

    def _starts_and_idle(self) -> None:
        running, generator, served_s = self.start()
        if "idle" in self.parts:
            self.say("idle connections")
            held = generator.hold(_IDLE_CONNECTIONS)
            time.sleep(1.0)
            self.record(IDLE, process.resident_bytes(running.pid) / MEGABYTE)
            held.release()
        if "starts" not in self.parts:
            return
        self.record(START_EMPTY, served_s)
        self.say("1,000 partitions")
        made = generator.run("create", topic="many", partitions=_MANY_PARTITIONS)
        self.record(CREATE_TOPIC, float(made["seconds"]))
        self.peer.stop()
        _, _, served_s = self.start(topic="many", partitions=_MANY_PARTITIONS)
        self.record(START_FULL, served_s)

    def _java(self, running: Running, generator: Generator) -> None:
        topic = "bench-java"
        generator.run("create", topic=topic, partitions=4)
        records = self.sizes.java_records
        produced = java_tools.produce(running.bootstrap, topic, records)
        consumed = java_tools.consume(running.bootstrap, topic, records)
        self.answers.setdefault("java", []).append({"produce": produced, "consume": consumed})
        self.record(JAVA_PRODUCE, produced["mb_per_second"])
        self.record(JAVA_PRODUCE_P99, produced["p99_ms"])
        self.record(JAVA_CONSUME, consumed["mb_per_second"])


BENCH = Bench(
    name="broker",
    figures=FIGURES,
    parts=(*(load.name for load in LOADS), "starts", "idle", "java"),
    trial=BrokerTrial,
    # On one Kafka node acks=1 and acks=all do almost the same work: the rows of a pair should
    # agree.
    controls=(
        ("produce-1mb-cpu", "produce-1mb-all-cpu"),
        ("produce-single-cpu", "produce-single-all-cpu"),
    ),
)
