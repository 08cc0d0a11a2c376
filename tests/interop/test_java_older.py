"""Java kafka-clients of Kafka 3.9: transactions as they were before KIP-890's second part."""

from __future__ import annotations

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.java_programs import java_program
from tests.interop.programs import Report, run_program
from tests.interop.stage import Stage
from tests.interop.transaction_cases import BEFORE_KIP_890, TRANSACTION_CASES

CASES = cases_without(BEFORE_KIP_890, TRANSACTION_CASES)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    return run_program(stage, "java-older", CASES, java_program("Interop", older=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_java_older(case: Case, report: Report) -> None:
    report.check(case)
