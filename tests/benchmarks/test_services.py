"""`headrace bench services`: its rows, its page, and that the flow of delayed messages is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.rivals.delay_flow import Flow, receive, send
from benchmarks.services import BENCH, FIGURES, ServicesBench
from tests.client.kafkas import Kafka

from benchmarks import report
from headrace.ledger.delay.service import delay_service
from headrace.ledger.service import LedgerOptions
from headrace.testing import BrokerThread

MACHINE = {"date": "2026-01-02", "cpu": "2 x CPU"}


def test_the_figures_have_names_of_their_own_and_the_targets_of_the_issue() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)
    targets = {figure.name: figure.target.limit for figure in FIGURES if figure.target}
    assert targets == {
        "late-1000-p99": 100,
        "rate-5000": 4_900,
        "memory-1m": 300,
        "rebuild-1m": 60,
        "large-send": 100,
        "large-consume": 100,
        "large-handle": 100,
    }


def test_the_page_has_a_place_for_them(tmp_path: Path) -> None:
    bench = ServicesBench()
    for column, value in (("headrace", 12.0), ("kafka", 34.0)):
        bench.values[column] = {figure.name: value for figure in FIGURES}
    bench.left_out["celery"] = "it is not installed"
    result = bench.result(MACHINE)
    page = report.insert(
        report.PAGE.read_text(), "services", bench.markdown(result, "./headrace bench")
    )
    assert "| &nbsp;&nbsp;late, p99 | ms | 12.0 | 34.0 | - | <= 100 ms | yes |" in page
    assert "**Left out:** Celery on Redis: it is not installed." in page
    bench.plot(result, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size
    assert bench.table(result).row_count == len(FIGURES)


def test_a_rival_can_be_chosen_but_docs_need_a_full_run() -> None:
    assert BENCH.parse(["--only", "headrace"]).only == ["headrace"]
    with pytest.raises(SystemExit):
        BENCH.parse(["--only", "headrace", "--write-docs"])


def test_a_flow_is_received_as_it_was_sent() -> None:
    with BrokerThread() as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        service = delay_service(settings, options=LedgerOptions(state_partitions=1))
        service.start()
        try:
            topic = Kafka("headrace", broker.bootstrap).topic("target")
            flow = Flow(broker.bootstrap, topic, 200, 0.5, 300)
            send(flow)
            answer = receive(flow)
        finally:
            service.stop()
    assert (answer["sent"], answer["received"], answer["early"]) == (100, 100, 0)
    assert answer["late_p99_ms"] >= answer["late_p50_ms"] >= 0
