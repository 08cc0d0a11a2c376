"""The same pipelines on a real Spark cluster, and on Spark's own connector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.spark_connector import NoConnector, connector_jars
from confluent_kafka import Producer
from tests.client.kafkas import Kafka
from tests.jars import CACHE
from tests.spark.clusters import SETTINGS, WORKERS, spark_cluster
from tests.spark.runs import make_topic, objects, send

from headrace.testing import BrokerThread

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN_SECONDS = 420
COUNTED = [{"page": "/x", "minute": "2026-01-02T03:04:00.000Z", "count": 2}]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster's master."""
    with spark_cluster(tmp_path) as made:
        yield made.url


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


def run_once(kafka: Kafka, target: str, folder: Path, *options: str) -> str:
    """`headrace pipeline run TARGET --once`, from the folder of the examples."""
    command = [sys.executable, "-m", "headrace", "pipeline", "run", target, "--once"]
    command += ["-b", kafka.bootstrap, "--home", str(folder / "home"), *options]
    done = subprocess.run(
        command,
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def send_clicks(kafka: Kafka) -> None:
    make_topic(kafka, "clicks")
    row = {"user": "a", "page": "/x", "at": "2026-01-02T03:04:05Z"}
    send(kafka, "clicks", [row, row, "not JSON"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_pipeline_runs_on_a_cluster(cluster: str, kafka: Kafka, tmp_path: Path) -> None:
    send_clicks(kafka)
    confs = [word for pair in SETTINGS.items() for word in ("--conf", "=".join(pair))]
    printed = run_once(kafka, "pipeline_clicks", tmp_path, "--master", cluster, *confs)
    assert "finished" in printed
    assert objects(kafka, "clicks_per_minute", 1) == COUNTED
    assert kafka.read("clicks.dlq", 1)[0].value() == b"not JSON"
    executors = [path for name in WORKERS for path in (tmp_path / name).glob("app-*")]
    assert len(executors) == 2, "both workers took part"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_pipeline_runs_on_the_official_connector(kafka: Kafka, tmp_path: Path) -> None:
    try:
        jars = connector_jars(CACHE)
    except NoConnector as missing:
        pytest.skip(f"the connector is not to be had: {missing}")
    send_clicks(kafka)
    aborted = Producer({**kafka.quiet, "transactional.id": "aborted"})
    aborted.init_transactions(60)
    aborted.begin_transaction()
    aborted.produce("clicks", '{"user": "a", "page": "/x", "at": "2026-01-02T03:04:05Z"}')
    assert aborted.flush(60) == 0
    aborted.abort_transaction(60)
    paths = ",".join(map(str, jars))
    run_once(
        kafka, "pipeline_clicks", tmp_path, "--connector", "kafka", "--conf", f"spark.jars={paths}"
    )
    assert objects(kafka, "clicks_per_minute", 1) == COUNTED
