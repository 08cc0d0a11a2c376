"""kafka-python's own integration tests, and the document that says how they end."""

from __future__ import annotations

import pytest
from tests.interop import kafka_python_suite
from tests.interop.conformance import DOCUMENT, MISSES, document


def test_kafka_python_passes_its_own_tests(request: pytest.FixtureRequest) -> None:
    broker = request.config.getoption("--on", "headrace")
    outcomes = kafka_python_suite.run(broker, without=MISSES if broker == "headrace" else ())
    assert {name: row.reason for name, row in outcomes.items() if row.result == "failed"} == {}
    assert sum(row.result == "passed" for row in outcomes.values()) >= 45


def test_every_miss_is_documented_with_its_reason() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, reason in MISSES.items():
        assert f"| `{name}` | {reason} |" in text


@pytest.mark.long
@pytest.mark.timeout(600)
def test_conformance_document_is_what_both_brokers_give() -> None:
    outcomes = {broker: kafka_python_suite.run(broker) for broker in kafka_python_suite.SPOKEN}
    assert document(outcomes) == DOCUMENT.read_text(encoding="utf-8")
