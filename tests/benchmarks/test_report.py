"""The benchmark's output: numbers, Markdown, the page's generated part, the plot."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.bench import Bench
from benchmarks.figures import Row
from benchmarks.report import PAGE, document, insert, markdown, number, plot, target_text

from benchmarks import broker, groups

BENCHES = pytest.mark.parametrize("bench", [broker.BENCH, groups.BENCH])
FIGURES = broker.BENCH.figures
FACTS = {"date": "2030-01-02", "cpu": "2 x Test"}
ROWS = [Row(figure, own=2.0, peer=4.0) for figure in FIGURES]
TITLES = ("Headrace 1", "Apache Kafka 2")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (54321.6, "54,322"), (83.26, "83.3"), (0.07349, "0.0735"), (7.0, "7")],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_targets_read_as_they_were_set() -> None:
    texts = {figure.name: target_text(figure) for figure in FIGURES}
    assert texts["produce-1mb"] == ">= 1.5x"
    assert texts["latency-p99"] == "<= 0.5x"
    assert texts["memory"] == "<= 80 MB"
    assert texts["latency-p999"] == ""


def test_markdown_has_a_line_per_row_and_the_command() -> None:
    text = markdown(
        "broker", ROWS, FACTS, TITLES, "./headrace bench broker --write-docs", ["noise"]
    )
    assert "**Doubtful:** noise." in text
    assert "`./headrace bench broker --write-docs`" in text
    assert sum(line.count("0.50x") for line in text.splitlines()) == len(ROWS)


def test_only_the_generated_part_of_the_page_is_replaced() -> None:
    begin, end = "<!-- bench broker: begin -->", "<!-- bench broker: end -->"
    page = f"mine\n{begin}\nold\n{end}\nmine too\n"
    assert insert(page, "broker", "new\n") == f"mine\n{begin}\nnew\n{end}\nmine too\n"
    with pytest.raises(ValueError, match="begin"):
        insert(page, "groups", "new")


@BENCHES
def test_the_docs_page_can_be_rewritten(bench: Bench) -> None:
    page = insert(PAGE.read_text(), bench.name, "new\n")
    assert f"<!-- bench {bench.name}: begin -->\nnew\n<!-- bench {bench.name}: end -->" in page


def test_the_document_says_what_is_reached() -> None:
    figures = {row["name"]: row for row in document(ROWS, FACTS, {})["figures"]}
    assert figures["produce-1mb"]["reached"] is False
    assert figures["produce-1mb-cpu"]["reached"] is True
    assert figures["latency-p999"]["target"] is None


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "img" / "plot.svg"
    plot(ROWS, path, TITLES)
    assert path.read_text().startswith("<?xml")


@BENCHES
def test_docs_are_written_only_from_a_whole_run(bench: Bench) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["--write-docs", "--only", bench.parts[0]])
    with pytest.raises(SystemExit):
        bench.parse(["--write-docs", "--quick"])
    assert bench.parse(["--quick"]).rounds == 1
    assert bench.parse([]).rounds == 3
