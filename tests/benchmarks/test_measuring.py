"""What is read from /proc, from the Java tools and from the load generator."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.java_tools import parse_consumed, parse_produced, parse_transacted
from benchmarks.machine import folder_bytes
from benchmarks.trial import is_steady, measurement

from benchmarks import generator, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PRODUCED = """\
30000 records sent, 5999 records/sec (5.72 MB/sec), 9.1 ms avg latency, 80.0 ms max latency.
100000 records sent, 50000.0 records/sec (47.68 MB/sec), 20.50 ms avg latency, 300.00 ms max \
latency, 10 ms 50th, 80 ms 95th, 120 ms 99th, 290 ms 99.9th.
75000 steady state records sent, 60000.0 records/sec (57.22 MB/sec), 12.50 ms avg latency, 99.00 \
ms max latency, 9 ms 50th, 40 ms 95th, 60 ms 99th, 90 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2030-01-02 10:00:00:000, 2030-01-02 10:00:04:000, 95.3674, 23.8, 100000, 25000.0, 3500, 500, \
190.7349, 200000.0
"""


def test_the_steady_state_of_the_java_producer_is_taken() -> None:
    produced = parse_produced(PRODUCED)
    assert produced["records_per_second"] == 60000.0
    assert produced["mb_per_second"] == pytest.approx(60.0, rel=0.001)
    assert produced["p99_ms"] == 60.0


def test_the_java_consumers_rate_leaves_out_joining_the_group() -> None:
    consumed = parse_consumed(CONSUMED)
    assert consumed["mb_per_second"] == pytest.approx(200.0, rel=0.001)
    assert consumed["records"] == 100000


def test_the_java_producers_result_is_the_line_that_it_prints_last() -> None:
    printed = 'a warning\n{"transactions": 9, "transactions_per_second": 3.5, "p99_ms": 20.0}\n'
    assert parse_transacted(printed)["transactions_per_second"] == 3.5


@pytest.mark.parametrize("parse", [parse_produced, parse_consumed, parse_transacted])
def test_output_without_a_summary_is_an_error(parse: type) -> None:
    with pytest.raises(ValueError, match="printed no"):
        parse("java.lang.OutOfMemoryError\n")


def test_a_process_name_with_spaces_and_brackets_does_not_shift_fields() -> None:
    assert process.stat_fields("12 (a) b (c)) S 1 2 3")[:3] == ["S", "1", "2"]


def test_processor_time_and_memory_of_this_process_are_seen() -> None:
    begun = process.cpu_seconds(os.getpid())
    while process.cpu_seconds(os.getpid()) == begun:
        sum(range(10_000))
    assert process.peak_bytes(os.getpid()) > 1_000_000
    assert process.resident_bytes(os.getpid()) > 1_000_000
    assert process.started_at(os.getpid()) < time.time()


def test_descendants_are_part_of_the_tree() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in process.tree(os.getpid())
    finally:
        child.communicate()


def test_figures_are_computed_from_the_answer() -> None:
    answer = {
        "bytes": 2_000_000,
        "requests": 4,
        "mb_per_second": 7.0,
        "broker_cpu_seconds": 0.002,
        "latency_ms": {"p50": 0.1},
    }
    assert measurement(answer, "cpu_ms_per_mb") == 1.0
    assert measurement(answer, "cpu_us_per_request") == 500.0
    assert measurement(answer, "mb_per_second") == 7.0
    assert measurement(answer, "p50") == 0.1


@pytest.mark.parametrize(
    ("costs", "steady"),
    [
        ([100.0, 100.0], False),
        ([100.0, 99.0, 98.0], True),
        ([100.0, 80.0, 60.0], False),
        ([100.0, 60.0, 100.0], False),
        ([100.0, 50.0, 50.0, 51.0], True),
    ],
)
def test_a_broker_is_warm_when_its_cost_stops_falling(costs: list[float], steady: bool) -> None:
    assert is_steady(costs) is steady


def test_flags_are_spelled_as_go_reads_them() -> None:
    command = generator.Generator(Path("loadgen"), "h:1").command(
        "produce", bytes_max=5, idempotent=True
    )
    assert command == ["loadgen", "produce", "-bootstrap=h:1", "-bytes-max=5", "-idempotent=true"]


def test_the_space_of_a_folder_is_counted(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(bytes(100_000))
    assert folder_bytes(tmp_path) >= 100_000
    assert folder_bytes(tmp_path, without="inn") < 100_000
    assert folder_bytes(tmp_path / "missing") == 0
