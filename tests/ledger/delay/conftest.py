"""A Kafka of each kind, with the delay service on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import LIVELY, TIMEOUT_SECONDS, Kafka

from headrace.ledger.delay.service import delay_service
from headrace.ledger.service import LedgerService
from headrace.testing import BrokerThread


@pytest.fixture(scope="module")
def headrace_broker() -> Iterator[Kafka]:
    """A Headrace for the tests of a module."""
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


@pytest.fixture(scope="module", params=["headrace", "apache"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Headrace, then Apache Kafka."""
    if request.param == "headrace":
        kafka: Kafka = request.getfixturevalue("headrace_broker")
        return kafka
    server: ApacheKafka = request.getfixturevalue("apache_kafka")
    return Kafka("apache", server.bootstrap)


@pytest.fixture(scope="module")
def service(kafka: Kafka) -> Iterator[LedgerService]:
    """An instance of the delay service that the tests of a module share."""
    running = delay_service({**kafka.quiet, **LIVELY})
    running.start()
    try:
        assert running.wait_ready(TIMEOUT_SECONDS)
        yield running
    finally:
        running.stop()
