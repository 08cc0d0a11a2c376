"""librdkafka's own broker tests: a choice of them, and all beside Apache Kafka with `--long`."""

from __future__ import annotations

import re

import pytest
from tests.interop import kafka_python_suite, librdkafka_suite
from tests.interop.conformance import DOCUMENT, document
from tests.interop.programs import need
from tests.interop.verdicts import LIBRDKAFKA_LATER, LIBRDKAFKA_MISSES, LIBRDKAFKA_NOTES

# By number: those that take a second or so in the runner's short form.
CHOICE = (
    *("0001", "0002", "0003", "0005", "0007", "0008", "0012", "0013", "0017", "0022", "0029"),
    *("0031", "0034", "0035", "0036", "0039", "0044", "0048", "0054", "0056", "0057", "0063"),
    *("0064", "0065", "0070", "0073", "0085", "0099", "0130", "0132", "0140"),
)
# Of what passes on Apache Kafka, and needs no later feature.
SHARE_MIN = 97.0


@pytest.mark.timeout(600)  # the first time it is built
def test_a_choice_of_librdkafkas_own_tests_passes(request: pytest.FixtureRequest) -> None:
    need(*librdkafka_suite.TOOLS)
    broker = request.config.getoption("--on", "headrace")
    outcomes = librdkafka_suite.run(broker, only=CHOICE, quick=True)
    assert {name: row.reason for name, row in outcomes.items() if row.result == "failed"} == {}
    assert sum(row.result == "passed" for row in outcomes.values()) >= len(CHOICE) - 2


def test_every_miss_is_documented_and_few_there_are() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, reason in {**LIBRDKAFKA_LATER, **LIBRDKAFKA_MISSES, **LIBRDKAFKA_NOTES}.items():
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert reason in row
    shares = [float(share) for share in re.findall(r"pass on Headrace, ([\d.]+) %", text)]
    assert len(shares) == 2
    assert min(shares) >= SHARE_MIN


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_conformance_document_is_what_both_brokers_give() -> None:
    need(*librdkafka_suite.TOOLS)
    kafka_python, librdkafka = (
        {broker: suite.run(broker) for broker in ("headrace", "apache")}
        for suite in (kafka_python_suite, librdkafka_suite)
    )
    assert document(kafka_python, librdkafka) == DOCUMENT.read_text(encoding="utf-8")
