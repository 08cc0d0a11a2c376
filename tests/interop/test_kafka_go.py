"""kafka-go, whose Reader does not negotiate versions and sends the oldest of each call."""

from __future__ import annotations

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.go_clients import go_program
from tests.interop.programs import Report, run_program
from tests.interop.stage import Stage

LACKS = {
    "idempotent": "has no idempotent producer",
    "delete-records": "has no call for it",
    "log-append-time": "gives the producer's time, whatever the batch says",
}
LACKS_SHAPES = {
    "empty key": "gives it back as nil",
    "empty value": "gives it back as nil",
    "empty header": "gives it back as nil",
}
CASES = cases_without(LACKS)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    program = str(go_program("kafkago"))
    return run_program(stage, "kafka-go", CASES, [program], lacks=LACKS_SHAPES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kafka_go(case: Case, report: Report) -> None:
    report.check(case)
