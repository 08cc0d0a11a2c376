"""`headrace bench dispatch`: its jobs, its ideal, its rows, and that a rival really runs jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.asking import ask
from benchmarks.dispatch import BENCH, DispatchBench, _nodes
from benchmarks.rivals.dispatch_work import TIMES_MAX, durations_ms, greedy_s

from benchmarks import report
from headrace.testing import BrokerThread

MACHINE = {"date": "2026-01-02", "cpu": "2 x CPU"}


def test_durations_are_the_same_each_time_and_some_are_a_hundred_times_others() -> None:
    durations = durations_ms(2000)
    assert durations == durations_ms(2000)
    assert max(durations) / min(durations) == pytest.approx(TIMES_MAX, rel=0.01)


def test_the_ideal_gives_each_job_to_who_is_idle_first() -> None:
    assert greedy_s([1000, 1000, 1000], 2) == 2.0
    assert greedy_s([3000, 1000, 1000, 1000], 2) == 3.0
    durations = durations_ms(2000)
    even_s = sum(durations) / 8 / 1000
    assert even_s <= greedy_s(durations, 8) < 1.05 * even_s


def measured(**values: float) -> DispatchBench:
    bench = DispatchBench()
    bench.values["headrace"] = values
    bench.left_out["share"] = "no broker"
    return bench


def test_rows_say_what_is_reached() -> None:
    bench = measured(makespan=1.04, rate=2999.0)
    result = bench.result(MACHINE)
    text = bench.markdown(result, "./headrace bench dispatch")
    lines = {line.split(" | ")[0]: line for line in text.splitlines()}
    assert lines["| heavy-tailed jobs, 8 workers: times the ideal"].endswith("| yes |")
    assert lines["| empty jobs"].endswith("| no |")
    assert "**Left out:** share group: no broker." in text
    assert bench.table(result).row_count == len(bench.figures)


def test_the_page_has_a_place_for_it_and_the_plot_is_drawn(tmp_path: Path) -> None:
    assert "new figures" in report.insert(report.PAGE.read_text(), BENCH.name, "new figures")
    bench = measured(seconds=41.0)
    bench.plot(bench.result(MACHINE), tmp_path / "plot.svg")
    assert "the ideal" in (tmp_path / "plot.svg").read_text()


def test_docs_need_a_full_run() -> None:
    with pytest.raises(SystemExit):
        BENCH.parse(["--write-docs", "--quick"])


def test_a_node_works_and_another_submits(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.dispatch.SETTLE_SECONDS", 0.0)
    told = {
        "bootstrap": broker.bootstrap,
        "tokens": f"sqlite:///{tmp_path}/tokens.db",
        "topic": "work",
        "partitions": 2,
        "warm": 2,
        "spool": str(tmp_path / "submit.spool"),
    }
    with _nodes(told, tmp_path, 1):
        answer = ask("dispatch_node", {**told, "mode": "all", "jobs": [5.0] * 10})
        assert answer["seconds"] >= 0.025
        answer = ask("dispatch_node", {**told, "mode": "one", "jobs": [0.0] * 3})
        assert len(answer["to_running_ms"]) == 3
