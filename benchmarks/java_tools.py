"""Java clients, as a Java user would run them, against either broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.apache_kafka import java_tool

_TRANSACTIONS = Path(__file__).parent / "java" / "Transactions.java"
_RECORD_BYTES = 1000
_WARM_SHARE = 4  # of the records, one in so many is the tool's own warm-up
_JVM = ("-Xms256m", "-Xmx512m")
_TIMEOUT_S = 300.0
_MIB = 1.048576

_PRODUCED = re.compile(
    r"([\d.]+) (?:steady state )?records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), "
    r"([\d.]+) ms avg latency, ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, "
    r"(\d+) ms 99th, (\d+) ms 99.9th"
)


def produce(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """ProducerPerformance with the producer's defaults (acks=all, idempotent) at full speed."""
    printed = java_tool(
        "producer-perf-test",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(_RECORD_BYTES),
        "--warmup-records",
        str(records // _WARM_SHARE),
        "--throughput",
        "-1",
        jvm=_JVM,
        timeout_s=_TIMEOUT_S,
    )
    return parse_produced(printed)


def consume(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """ConsumerPerformance over all that was produced; the time of joining the group is left out."""
    printed = java_tool(
        "consumer-perf-test",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        str(records),
        jvm=_JVM,
        timeout_s=_TIMEOUT_S,
    )
    return parse_consumed(printed)


def parse_produced(printed: str) -> dict[str, float]:
    """The last summary, which is of the steady state, in millions of bytes."""
    summaries = _PRODUCED.findall(printed)
    if not summaries:
        raise ValueError(f"ProducerPerformance printed no summary:\n{printed}")
    _, rate, mib, mean, worst, p50, _, p99, p999 = map(float, summaries[-1])
    return {
        "records_per_second": rate,
        "mb_per_second": mib * _MIB,
        "mean_ms": mean,
        "max_ms": worst,
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
    }


def parse_consumed(printed: str) -> dict[str, float]:
    """The one row under the header, in millions of bytes."""
    lines = [line.split(", ") for line in printed.splitlines() if line.count(", ") >= 9]
    if len(lines) < 2:
        raise ValueError(f"ConsumerPerformance printed no row:\n{printed}")
    row = dict(zip(lines[-2], lines[-1], strict=True))
    return {
        "records_per_second": float(row["fetch.nMsg.sec"]),
        "mb_per_second": float(row["fetch.MB.sec"]) * _MIB,
        "records": float(row["data.consumed.in.nMsg"]),
    }


def transact(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    """A Java producer with its defaults that commits transactions of 10 records in turn."""
    printed = java_tool(
        str(_TRANSACTIONS), bootstrap, topic, str(seconds), jvm=_JVM, timeout_s=_TIMEOUT_S
    )
    return parse_transacted(printed)


def parse_transacted(printed: str) -> dict[str, float]:
    """The JSON object that the program prints last."""
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if not lines:
        raise ValueError(f"the Java producer printed no result:\n{printed}")
    done: dict[str, float] = json.loads(lines[-1])
    return done
