"""The same pipelines on a real Spark cluster, and on Spark's own connector."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyspark
import pytest
from benchmarks.spark_connector import NoConnector, connector_jars
from tests.client.kafkas import Kafka, until
from tests.jars import CACHE
from tests.spark.runs import make_topic, objects, send

from headrace.testing import BrokerThread

CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_SECONDS = 420


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a part of a Spark cluster; what it says goes to a file."""
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(CLASS), *arguments],
            cwd=folder,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, each a process; its URL."""
    parts = [
        start(
            tmp_path, "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
        )
    ]  # fmt: skip

    def said(name: str, pattern: str) -> list[str]:
        return re.findall(pattern, (tmp_path / f"{name}.log").read_text(errors="replace"))

    try:
        until(lambda: said("master", r"spark://[\w.]+:[1-9]\d*"))
        url: str = said("master", r"spark://[\w.]+:[1-9]\d*")[0]
        parts += [
            start(
                tmp_path, name, "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(tmp_path / name), url,
            )
            for name in ("worker1", "worker2")
        ]  # fmt: skip
        for name in ("worker1", "worker2"):
            until(partial(said, name, "Successfully registered with master"))
        yield url
    finally:
        for part in parts:
            part.terminate()
        for part in parts:
            part.wait(60)


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
    printed = run_once(
        kafka, "pipeline_clicks", tmp_path, "--master", cluster,
        "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1",
    )  # fmt: skip
    assert "finished" in printed
    assert objects(kafka, "clicks_per_minute", 1) == [{"page": "/x", "minute": "03:04", "count": 2}]
    assert kafka.read("clicks.dlq", 1)[0].value() == b"not JSON"
    executors = [
        path for name in ("worker1", "worker2") for path in (tmp_path / name).glob("app-*")
    ]
    assert len(executors) == 2, "both workers took part"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_pipeline_runs_on_the_official_connector(kafka: Kafka, tmp_path: Path) -> None:
    try:
        jars = connector_jars(CACHE)
    except NoConnector as missing:
        pytest.skip(f"the connector is not to be had: {missing}")
    send_clicks(kafka)
    paths = ",".join(map(str, jars))
    run_once(
        kafka, "pipeline_clicks", tmp_path, "--connector", "kafka", "--conf", f"spark.jars={paths}"
    )
    assert objects(kafka, "clicks_per_minute", 1) == [{"page": "/x", "minute": "03:04", "count": 2}]
