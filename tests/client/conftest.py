"""The Kafkas that clients are tried on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import Kafka

from headrace.testing import BrokerThread


@pytest.fixture(scope="session")
def headrace_kafka() -> Iterator[Kafka]:
    """A Headrace that the tests of a run share."""
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


@pytest.fixture(params=["headrace", "apache"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Headrace, then Apache Kafka."""
    if request.param == "headrace":
        kafka: Kafka = request.getfixturevalue("headrace_kafka")
        return kafka
    server: ApacheKafka = request.getfixturevalue("apache_kafka")
    return Kafka("apache", server.bootstrap)
