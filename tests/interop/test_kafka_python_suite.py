"""kafka-python's own integration tests."""

from __future__ import annotations

import pytest
from tests.interop import kafka_python_suite
from tests.interop.conformance import DOCUMENT
from tests.interop.verdicts import KAFKA_PYTHON_LATER, KAFKA_PYTHON_MISSES

EXPECTED = {**KAFKA_PYTHON_LATER, **KAFKA_PYTHON_MISSES}


@pytest.mark.timeout(400)
def test_kafka_python_passes_its_own_tests(request: pytest.FixtureRequest) -> None:
    broker = request.config.getoption("--on", "headrace")
    outcomes = kafka_python_suite.run(broker, without=EXPECTED if broker == "headrace" else ())
    assert {name: row.reason for name, row in outcomes.items() if row.failed} == {}
    assert sum(row.result == "passed" for row in outcomes.values()) >= 52


def test_every_miss_is_documented_with_its_reason() -> None:
    rows = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for name, reason in EXPECTED.items():
        assert any(row.startswith(f"| `{name}` |") and reason in row for row in rows)
