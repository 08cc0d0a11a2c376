"""Java kafka-clients."""

from __future__ import annotations

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.java_programs import java_program
from tests.interop.programs import ALL_CASES, Report, run_program
from tests.interop.stage import Stage
from tests.interop.transaction_cases import SINCE_KIP_890

LACKS = SINCE_KIP_890
LACKS_SHAPES: dict[str, str] = {}
CASES = cases_without(LACKS, ALL_CASES)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    return run_program(stage, "java", CASES, java_program("Interop"), lacks=LACKS_SHAPES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_java(case: Case, report: Report) -> None:
    report.check(case)
