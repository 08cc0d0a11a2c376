"""`headrace bench spark`: its loads, and how its figures are judged and shown."""

from __future__ import annotations

import io
from typing import Any

import pytest
from benchmarks.spark import BENCH, PARTS, WAYS, Part, Target, figure, markdown, table
from benchmarks.spark_topics import PARTITIONS, Load
from rich.console import Console

from headrace.protocol.compression import Codec
from headrace.spark.source.batch_reader import BatchReader
from headrace.spark.source.options import read_options
from headrace.testing import BrokerThread

PLAIN, BEST = "headrace", "headrace-value"
TARGETS = (Target(PLAIN, "connector", 2.0), Target(BEST, "connector-best", 1.3))
PART = Part("batch", "batch", (), targets=TARGETS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_topic_has_as_many_records_as_it_says(broker: BrokerThread, codec: Codec) -> None:
    load = Load("loaded", 5000, 100, codec)
    load.fill(broker.bootstrap)
    given = {"bootstrap": broker.bootstrap, "subscribe": "loaded", "columns": "value"}
    options = read_options(given)
    reader = BatchReader(options, options.columns)
    tasks = reader.partitions()
    sizes = [
        len(value)
        for task in tasks
        for batch in reader.read(task)
        for value in batch.column(0).to_pylist()
    ]
    assert len(tasks) == PARTITIONS
    assert sizes == [100] * load.written


@pytest.mark.parametrize(
    ("plain", "best", "reached"),
    [(2.1e6, 2.7e6, True), (2.1e6, 2.5e6, False), (1.9e6, 2.7e6, False)],
)
def test_both_targets_count(plain: float, best: float, reached: bool) -> None:
    rates = {"connector": [1e6, 9e6, 1e6], "connector-best": [2e6], PLAIN: [plain], BEST: [best]}
    found = figure(PART, rates)
    assert found["records_per_second"]["connector"] == 1e6
    assert found["ratios"] == [plain / 1e6, best / 2e6]
    assert found["reached"] is reached


def test_without_the_connector_nothing_is_claimed() -> None:
    assert figure(PART, {PLAIN: [1e6], BEST: [1e6]})["reached"] is None


def result() -> dict[str, Any]:
    return {
        "machine": {"date": "2026-01-02", "cpu": "2 x CPU"},
        "broker": "Headrace",
        "connector": ["connector-4.2.0.jar"],
        "figures": [
            figure(PART, {"connector": [1e6], "connector-best": [2e6], PLAIN: [2.5e6], BEST: [3e6]})
        ],
    }


def test_the_figures_as_table_and_page() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(result()))
    text = console.export_text()
    assert "2.50x, 1.50x" in text
    page = markdown(result(), "./headrace bench spark")
    assert "| batch | 1.00 | 2.00 | 2.50 | 3.00 | 2.50x, 1.50x | 2x, 1.3x | yes |" in page
    assert "| cpu | 2 x CPU |" in page


def test_a_part_of_a_run_is_not_for_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        BENCH.parse(["--write-docs", "--quick"])
    assert "full run" in capsys.readouterr().err
    judged = {way for part in PARTS for it in part.targets for way in (it.own, it.other)}
    assert judged <= set(WAYS)
