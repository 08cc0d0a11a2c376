"""franz-go."""

from __future__ import annotations

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.go_clients import go_program
from tests.interop.programs import Report, run_program
from tests.interop.stage import Stage

LACKS: dict[str, str] = {}
LACKS_SHAPES: dict[str, str] = {}
CASES = cases_without(LACKS)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    program = str(go_program("franz"))
    return run_program(stage, "franz-go", CASES, [program], lacks=LACKS_SHAPES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_franz_go(case: Case, report: Report) -> None:
    report.check(case)
