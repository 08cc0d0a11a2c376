"""`headrace bench spark`: its loads, and how its figures are judged and shown."""

from __future__ import annotations

import io
from typing import Any

import pytest
from benchmarks.spark import BENCH, OWN, PARTS, WAYS, Part, figure, markdown, table
from benchmarks.spark_topics import PARTITIONS, Load
from rich.console import Console

from headrace.protocol.compression import Codec
from headrace.spark.batch import BatchReader
from headrace.spark.options import read_options
from headrace.testing import BrokerThread

PART = Part("batch", "batch", (), least_by_way={"connector": 2.0, "connector-best": 1.3})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_topic_has_as_many_records_as_it_says(broker: BrokerThread, codec: Codec) -> None:
    load = Load("loaded", 5000, 100, codec)
    load.fill(broker.bootstrap)
    given = {"bootstrap": broker.bootstrap, "subscribe": "loaded", "columns": "value"}
    options = read_options(given)
    reader = BatchReader(options, options.columns)
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    assert len(tasks) == PARTITIONS
    assert sum(batch.num_rows for batch in batches) == load.written
    sizes = {len(value) for batch in batches for value in batch.column(0).to_pylist()}
    assert sizes == {100}


@pytest.mark.parametrize(("own", "reached"), [(2.7e6, True), (2.5e6, False), (1.9e6, False)])
def test_both_targets_count(own: float, reached: bool) -> None:
    found = figure(PART, {"connector": [1e6, 9e6, 1e6], "connector-best": [2e6], OWN: [own]})
    assert found["records_per_second"]["connector"] == 1e6
    assert found["ratios"]["connector-best"] == own / 2e6
    assert found["reached"] is reached


def test_without_the_connector_nothing_is_claimed() -> None:
    assert figure(PART, {OWN: [1e6]})["reached"] is None


def result() -> dict[str, Any]:
    return {
        "machine": {"date": "2026-01-02", "cpu": "2 x CPU"},
        "broker": "Headrace",
        "connector": ["connector-4.2.0.jar"],
        "figures": [figure(PART, {"connector": [1e6], "connector-best": [2e6], OWN: [3e6]})],
    }


def test_the_figures_as_table_and_page() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(result()))
    text = console.export_text()
    assert "3.00x, 1.50x" in text
    page = markdown(result(), "./headrace bench spark")
    assert "| batch | 1.00 | 2.00 | - | 3.00 | 3.00x, 1.50x | 2x, 1.3x | yes |" in page
    assert "| cpu | 2 x CPU |" in page


def test_a_part_of_a_run_is_not_for_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        BENCH.parse(["--write-docs", "--quick"])
    assert "full run" in capsys.readouterr().err
    assert {way for part in PARTS for way in part.least_by_way} <= set(WAYS)
