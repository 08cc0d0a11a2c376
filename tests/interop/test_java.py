"""Java kafka-clients."""

from __future__ import annotations

import pytest
from tests.apache_kafka import java_command
from tests.interop.cases import Case, cases_without
from tests.interop.programs import HERE, Report, need, run_program
from tests.interop.stage import Stage

LACKS: dict[str, str] = {}
LACKS_SHAPES: dict[str, str] = {}
CASES = cases_without(LACKS)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    need("java", "mvn")
    command = java_command(str(HERE / "java" / "Interop.java"))
    return run_program(stage, "java", CASES, command, lacks=LACKS_SHAPES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_java(case: Case, report: Report) -> None:
    report.check(case)
