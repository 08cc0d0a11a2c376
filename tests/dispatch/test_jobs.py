"""Jobs, answers and outcomes in bytes, and workers read from their annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.dispatch.errors import DispatchError
from headrace.dispatch.jobs import (
    Delivery,
    decode_answer,
    encode_answer,
    encode_job,
)
from headrace.dispatch.metrics import COUNTERS, GAUGES, text
from headrace.dispatch.records import Outcome, parse_outcome
from headrace.dispatch.workers import make_worker

DELIVERY = Delivery("id", "jobs", 1, 2, "3.4")


@dataclass
class Job:
    n: int


def test_a_worker_gets_its_job_as_annotated() -> None:
    def plain(job: Any) -> Any:
        return job

    def typed(job: Job) -> Job:
        return Job(job.n + 1)

    def told(delivery: Delivery, job: Job) -> str:
        return f"{delivery.id} {job.n}"

    assert make_worker(plain).call(b"{}", DELIVERY) == b"{}"
    assert make_worker(typed).call(b'{"n":1}', DELIVERY) == Job(2)
    assert make_worker(told).delivery == "delivery"


def test_a_worker_may_be_told_how_its_job_came() -> None:
    def work(job: str, delivery: Delivery) -> str:
        return f"{job} {delivery.partition}/{delivery.offset}"

    assert make_worker(work).call(b"x", DELIVERY) == "x 1/2"


def test_annotations_that_cannot_be_used_are_named() -> None:
    def unknown(job: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def strange(job: list[int] | set[int]) -> None: ...

    with pytest.raises(DispatchError, match="'Nothing' is not defined"):
        make_worker(unknown)
    with pytest.raises(DispatchError, match="cannot be decoded as"):
        make_worker(strange)


@pytest.mark.parametrize("answer", [None, b"\xff", "text", 7, [1, "a"], {"a": None}])
def test_answers_without_a_type_come_back_as_they_were(answer: Any) -> None:
    assert decode_answer(*encode_answer(answer), None) == answer


def test_jobs_are_bytes_on_the_way() -> None:
    assert [encode_job(job) for job in (b"\0", "é", Job(1), 0)] == [
        b"\0",
        "é".encode(),
        b'{"n":1}',
        b"0",
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("a", "done", 1, 2, "3.4", "node", b"answer", "bytes"),
        Outcome("b", "failed", 0, 0, "1.0", "node", error=("ValueError", "line\nline")),
        Outcome("c", "refused", 15, 1 << 40, "", ""),
    ],
)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert parse_outcome(outcome.id.encode(), outcome.answer, outcome.headers()) == outcome


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (None, []),
        (b"a", None),
        (b"a", [("headrace-outcome", b"maybe"), ("headrace-place", b"1/2")]),
        (b"a", [("headrace-outcome", b"done"), ("headrace-place", b"1")]),
        (b"a", [("headrace-outcome", b"done"), ("headrace-place", b"x/2")]),
        (b"a", [("headrace-outcome", None)]),
    ],
)
def test_a_record_of_somebody_else_is_no_outcome(key: bytes | None, headers: Any) -> None:
    assert parse_outcome(key, b"", headers) is None


def test_metrics_are_what_prometheus_reads() -> None:
    shown = text({"done": 3, "waiting": 1, "owner_refused": 2}, 'a"b')
    assert 'headrace_dispatch_done_total{topic="a\\"b"} 3' in shown.splitlines()
    assert "# TYPE headrace_dispatch_waiting gauge" in shown.splitlines()
    assert "# HELP headrace_dispatch_owner_refused_total Times: owner refused." in shown
    assert not GAUGES.keys() & COUNTERS.keys()
