"""The blocks of the page on pipelines run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.client.kafkas import Kafka, values
from tests.spark.runs import make_topic, run_pipeline

from headrace.spark import Pipeline, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.testing import BrokerThread

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
ADDRESS = "127.0.0.1:9092"


def test_every_block_of_the_page_runs(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    monkeypatch.chdir(tmp_path)
    kafka = Kafka("headrace", broker.bootstrap)
    for topic in ("clicks", "payments", "payments-copy"):
        make_topic(kafka, topic)
    kafka.fill("payments", 5)
    page = PAGE.read_text().replace(ADDRESS, broker.bootstrap)
    # Spark's JVM was started elsewhere.
    page = page.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    page = page.replace('"data/', f'"{tmp_path}/data/')
    names: dict[str, object] = {"__name__": "page", "spark": spark}
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n?```text\n(.*?)```)?", page, re.DOTALL)
    assert len(blocks) == 3
    for program, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, PAGE.name, "exec"), names)
        assert printed.getvalue() == expected, program
    made = names["clicks_per_minute"]
    assert isinstance(made, Pipeline)
    assert run_pipeline(spark, kafka, made, tmp_path)["state"] == "finished"
    assert sorted(values(kafka.read("payments-copy", 5))) == [f"v{number}" for number in range(5)]
    assert len(spark.read.parquet(f"{tmp_path}/data/payments").collect()) == 5
