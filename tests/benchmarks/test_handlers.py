"""`headrace bench handlers`: its loads, its rows, and that a rival really does a load."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.asking import ROOT, ask
from benchmarks.figures import Values
from benchmarks.handlers import BENCH
from benchmarks.handlers_parts import (
    BACKLOG,
    FIGURES,
    FLOW,
    PARTS,
    SLEEPS,
    growth_mb,
    times_ideal,
    topics_of,
)
from benchmarks.orders import Orders
from benchmarks.rivals.work import Load
from rich.console import Console

from benchmarks import contest, report
from headrace.testing import BrokerThread

MACHINE = {"date": "2026-01-02", "cpu": "2 x CPU"}
RIVAL_SECONDS = 60


def rows(**values: dict[str, float]) -> list[contest.ContestRow]:
    """Rows from one value per rival and figure."""
    measured: dict[str, Values] = {
        rival: {figure: [value] for figure, value in by_figure.items()}
        for rival, by_figure in values.items()
    }
    return contest.rows_of(FIGURES, measured)


def test_every_part_has_a_topic_and_a_row_for_headrace_or_its_limit() -> None:
    topics = topics_of(PARTS, quick=False)
    for part in PARTS:
        assert part.topic in topics
        assert {contest.OWN, contest.LIMIT} & set(part.entries)
        assert set(part.entries) <= set(contest.RIVALS)
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)


def test_every_rival_s_program_is_there() -> None:
    for part in PARTS:
        for entry in part.entries.values():
            assert (ROOT / "benchmarks" / "rivals" / f"{entry.module}.py").is_file()


def test_a_quick_run_has_fewer_orders_but_the_same_sleeps() -> None:
    topics = topics_of(PARTS, quick=True)
    assert topics["flow"].count < FLOW.count
    assert topics["backlog"].count < BACKLOG.count
    assert topics["sleeps"] == SLEEPS


def test_orders_are_the_same_each_time() -> None:
    assert list(SLEEPS)[:100] == list(SLEEPS)[:100]
    assert {key for key, _ in SLEEPS} == {b"k%d" % key for key in range(SLEEPS.keys)}


def test_the_ideal_is_the_work_of_the_busiest_key() -> None:
    by_key: dict[bytes, int] = {}
    for key, order in SLEEPS:
        by_key[key] = by_key.get(key, 0) + order.work_us
    assert SLEEPS.ideal_s() == max(by_key.values()) / 1e6
    # About an even share of the whole for each key, or the contest would say little.
    assert SLEEPS.ideal_s() < 1.4 * sum(by_key.values()) / SLEEPS.keys / 1e6
    assert times_ideal({"seconds": 2 * SLEEPS.ideal_s()}, SLEEPS) == pytest.approx(2.0)


def test_growth_counts_from_a_fifth_of_the_load_on() -> None:
    flat = [50e6, 90e6, 100e6, 101e6, 100e6, 99e6, 100e6, 100e6, 100e6, 100e6]
    assert growth_mb({"resident_bytes": flat}, BACKLOG) == pytest.approx(1.0)
    assert growth_mb({"resident_bytes": [50e6 * (at + 1) for at in range(10)]}, BACKLOG) > 300


def test_ratios_and_relative_targets_are_about_the_loop_by_hand() -> None:
    (row,) = rows(headrace={"flow": 80_000}, plain={"flow": 100_000}, faststream={"flow": 3_000})
    assert row.pair.ratio == pytest.approx(0.8)
    assert row.pair.reached is True
    (row,) = rows(headrace={"flow": 60_000}, plain={"flow": 100_000})
    assert row.pair.reached is False


def test_targets_of_their_own_need_no_rival() -> None:
    (row,) = rows(headrace={"lanes": 49_999})
    assert (row.pair.ratio, row.pair.reached) == (None, False)
    (row,) = rows(headrace={"sleeps": 1.19})
    assert row.pair.reached is True


def test_the_table_and_the_page_have_every_rival() -> None:
    found = rows(
        headrace={"flow": 80_000, "sleeps": 1.1}, plain={"flow": 100_000}, pyrallel={"flow": 700}
    )
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as shown:
        console.print(contest.table(found, "Handlers"))
    text = contest.markdown(
        "handlers",
        found,
        MACHINE,
        {"plain": "confluent-kafka 2", "headrace": "Headrace 0"},
        "./headrace bench handlers",
        {"faststream": "it failed under flow"},
    )
    for title in contest.RIVALS.values():
        assert title in shown.get()
        assert f"| {title} |" in text
    assert "| 100,000 | - | - | 700 | 80,000 | 0.80x | >= 0.7x | yes |" in text
    assert "**Left out:** FastStream: it failed under flow." in text


def test_the_document_has_values_by_rival() -> None:
    found = rows(headrace={"flow": 80_000}, plain={"flow": 100_000})
    document = json.loads(json.dumps(contest.document(found, MACHINE, {"rounds": 1})))
    (figure,) = document["figures"]
    assert figure["values"] == {"headrace": 80_000, "plain": 100_000}
    assert (figure["ratio"], figure["target"], figure["reached"]) == (0.8, ">= 0.7x", True)


def test_the_plot_is_drawn_from_what_there_is(tmp_path: Path) -> None:
    found = rows(headrace={"flow": 80_000, "lanes": 60_000}, plain={"flow": 100_000})
    contest.plot(found, tmp_path / "plot.svg", "Handlers")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_the_page_has_a_place_for_it() -> None:
    assert "new figures" in report.insert(report.PAGE.read_text(), BENCH.name, "new figures\n")


def test_the_docs_are_written_only_from_a_full_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        BENCH.parse(["--write-docs", "--quick"])
    assert "full run" in capsys.readouterr().err


@pytest.mark.parametrize("rival", ["plain", "aiokafka_loop", "headrace_app"])
def test_a_rival_does_a_small_load(broker: BrokerThread, rival: str) -> None:
    orders = Orders("few", 500, partitions=2, keys=10)
    orders.fill(broker.bootstrap)
    load = Load(broker.bootstrap, orders.topic, "g", orders.count, seconds_max=30.0)
    answer = ask(rival, asdict(load), seconds_max=RIVAL_SECONDS)
    assert answer["messages"] == orders.count
    assert answer["messages_per_second"] > 0
    assert answer["resident_bytes"]
