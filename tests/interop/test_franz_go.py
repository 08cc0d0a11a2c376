"""franz-go."""

from __future__ import annotations

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.go_clients import go_program
from tests.interop.programs import ALL_CASES, Report, run_program
from tests.interop.stage import Stage
from tests.interop.transaction_cases import BEFORE_KIP_890, SINCE_KIP_890, TRANSACTION_CASES

LACKS = SINCE_KIP_890
LACKS_SHAPES: dict[str, str] = {}
CASES = cases_without(LACKS, ALL_CASES)
OLDER_CASES = cases_without(BEFORE_KIP_890, TRANSACTION_CASES)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    program = str(go_program("franz"))
    return run_program(stage, "franz-go", CASES, [program], lacks=LACKS_SHAPES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_franz_go(case: Case, report: Report) -> None:
    report.check(case)


@pytest.fixture(scope="module")
def older_report(stage: Stage) -> Report:
    """With the versions of Kafka 3.9, before KIP-890's second part."""
    program = str(go_program("franz"))
    return run_program(stage, "franz-go-older", OLDER_CASES, [program, "older"])


@pytest.mark.parametrize("case", OLDER_CASES, ids=str)
def test_older_franz_go(case: Case, older_report: Report) -> None:
    older_report.check(case)
