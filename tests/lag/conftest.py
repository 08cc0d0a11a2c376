"""The Kafkas that lag is measured on, and a meter for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.conftest import headrace_kafka, kafka
from tests.client.kafkas import Kafka

from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security

__all__ = ["headrace_kafka", "kafka"]


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[ClusterClient]:
    """The Kafka of the test, asked directly."""
    with ClusterClient(parse_servers(kafka.bootstrap), Security()) as cluster:
        yield cluster
