"""The examples of pipelines, run as they stand over a few records."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.kafkas import Kafka
from tests.spark.runs import make_topic, objects, run_pipeline, send

from headrace.spark import register
from headrace.spark.pipelines.aliases import live_version, make_live
from headrace.spark.pipelines.comparison import compare
from headrace.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIED = {"clicks", "logs", "join", "sessions", "orders", "copy", "replay"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Kafka]:
    """A broker whose topics have the names that the examples give them."""
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


@pytest.fixture(autouse=True)
def _here(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(spark)
    monkeypatch.chdir(tmp_path)


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"pipeline_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(file: str, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as connection:
        return connection.execute(sql).fetchall()


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("pipeline_*.py")} == {
        f"pipeline_{n}" for n in TRIED
    }


def test_clicks_are_filtered_and_counted(spark: SparkSession, shared: Kafka) -> None:
    make_topic(shared, "clicks")
    clicks = [("a", "/Home", 10), ("b", "/home", 50), ("a", "/admin/x", 20), ("a", "/home", 70)]
    send(
        shared,
        "clicks",
        [
            {"user": user, "page": page, "at": f"2026-01-02T03:{second // 60:02}:{second % 60:02}Z"}
            for user, page, second in clicks
        ],
    )
    run_pipeline(spark, shared, example("clicks").clicks_per_minute, Path("home"))
    assert objects(shared, "clicks_per_minute", 2) == [
        {"page": "/home", "minute": "2026-01-02T03:01:00.000Z", "count": 1},
        {"page": "/home", "minute": "2026-01-02T03:00:00.000Z", "count": 2},
    ]


def test_log_lines_are_parted_by_day_and_level(
    spark: SparkSession, shared: Kafka, tmp_path: Path
) -> None:
    make_topic(shared, "log-lines")
    lines = [
        f"2026-01-0{day}T03:04:05Z web{day} {level} it happened"
        for day in (1, 2)
        for level in ("INFO", "ERROR")
    ]
    send(shared, "log-lines", lines)
    made = example("logs").logs
    run_pipeline(spark, shared, made, Path("home"))
    make_live(shared.bootstrap, made.sink, 1)
    found = spark.read.parquet(str(tmp_path / "logs" / "live"))
    assert {(str(row.day), row.level, row.machine) for row in found.collect()} == {
        ("2026-01-01", "info", "web1"), ("2026-01-01", "error", "web1"),
        ("2026-01-02", "info", "web2"), ("2026-01-02", "error", "web2"),
    }  # fmt: skip
    assert live_version(shared.bootstrap, made.sink) == 1


def test_two_streams_are_joined(spark: SparkSession, shared: Kafka) -> None:
    for topic in ("ads-shown", "ads-clicked"):
        make_topic(shared, topic)
    send(
        shared,
        "ads-shown",
        [{"ad": ad, "site": "s", "at": "2026-01-02T03:00:00Z"} for ad in ("a", "b", "c")],
    )
    clicks = [("a", "03:05:00"), ("b", "03:30:00"), ("z", "03:05:00")]
    send(shared, "ads-clicked", [{"ad": ad, "at": f"2026-01-02T{at}Z"} for ad, at in clicks])
    run_pipeline(spark, shared, example("join").effective_ads, Path("home"))
    [found] = objects(shared, "ads-effective", 1)
    assert (found["ad"], found["site"]) == ("a", "s")


def test_visits_are_sessions(spark: SparkSession, shared: Kafka) -> None:
    make_topic(shared, "page-views")
    made = example("sessions").visits
    views = [("a", "03:00"), ("a", "03:04"), ("b", "03:01"), ("a", "03:20"), ("z", "05:00")]
    send(
        shared,
        "page-views",
        [{"user": user, "page": "/", "at": f"2026-01-02T{at}:00Z"} for user, at in views],
    )
    run_pipeline(spark, shared, made, Path("home"))
    found = rows_of("visits.db", "SELECT * FROM visits_v1 ORDER BY user, began")
    assert [(user, began[:16], ended[:16], pages) for user, began, ended, pages in found] == [
        ("a", "2026-01-02 03:00", "2026-01-02 03:09", 2),
        ("a", "2026-01-02 03:20", "2026-01-02 03:25", 1),
        ("b", "2026-01-02 03:01", "2026-01-02 03:06", 1),
    ]


def test_orders_find_their_customers(spark: SparkSession, shared: Kafka) -> None:
    make_topic(shared, "customers", **{"cleanup.policy": "compact"})
    make_topic(shared, "orders")
    people = [{"id": "1", "name": "Ada"}, {"id": "2", "name": "Bob"}, {"id": "1", "name": "Eva"}]
    send(shared, "customers", people, key="id")
    send(shared, "orders", [{"order": "o1", "customer": "1", "amount": 5}], key="order")
    module = example("orders")
    run_pipeline(spark, shared, module.named_orders, Path("home"))
    assert objects(shared, "named-orders", 1) == [{"order": "o1", "name": "Eva", "amount": 5.0}]
    run_pipeline(spark, shared, module.customers, Path("home"))
    table = "SELECT key, name FROM customers_v1 ORDER BY key"
    assert rows_of("shop.db", table) == [("1", "Eva"), ("2", "Bob")]
    from confluent_kafka import Producer

    producer = Producer({**shared.quiet, "partitioner": "murmur2_random"})
    producer.produce("customers", None, "2")
    assert producer.flush(60) == 0
    run_pipeline(spark, shared, module.customers, Path("home"))
    assert rows_of("shop.db", table) == [("1", "Eva")]


def test_a_copy_has_keys_and_headers(spark: SparkSession, shared: Kafka) -> None:
    from confluent_kafka import Producer

    make_topic(shared, "payments")
    producer = Producer(shared.quiet)
    for number in range(10):
        producer.produce("payments", f"p{number}", f"k{number}", headers=[("n", str(number))])
    assert producer.flush(60) == 0
    run_pipeline(spark, shared, example("copy").copy_payments, Path("home"))
    found = {it.key(): (it.value(), it.headers()) for it in shared.read("payments-copy", 10)}
    assert found == {
        f"k{number}".encode(): (f"p{number}".encode(), [("n", str(number).encode())])
        for number in range(10)
    }


def test_a_bug_fix_is_replayed_into_a_table(spark: SparkSession, shared: Kafka) -> None:
    make_topic(shared, "sales")
    sales = [("de", 10, False), ("fr", 5, False), ("de", 7, True), ("it", 3, True)]
    send(
        shared,
        "sales",
        [{"country": each, "amount": amount, "refunded": back} for each, amount, back in sales],
    )
    module = example("replay")
    run_pipeline(spark, shared, module.revenue_before, Path("home"))
    make_live(shared.bootstrap, module.revenue_before.sink, 1)
    live = "SELECT country, revenue FROM revenue ORDER BY country"
    assert rows_of("revenue.db", live) == [("de", 17.0), ("fr", 5.0), ("it", 3.0)]
    run_pipeline(spark, shared, module.revenue, Path("home"))
    found = compare(spark, module.revenue.sink, 1, 2, {})
    assert (found.same, found.different, found.only_old, found.only_new) == (1, 1, 1, 0)
    make_live(shared.bootstrap, module.revenue.sink, 2)
    assert rows_of("revenue.db", live) == [("de", 10.0), ("fr", 5.0)]
    assert live_version(shared.bootstrap, module.revenue.sink) == 2
