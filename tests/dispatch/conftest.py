"""Brokers, databases and Redis for the dispatcher."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.dispatch.harness import Harness
from tests.redis_server import RedisServer

from headrace.testing import BrokerThread

# In full: what a user starts with, and what it may grow into. The others as a smoke.
PAIRS = (("headrace", "sqlite"), ("apache", "redis"))
ALL_PAIRS = (*PAIRS, ("headrace", "redis"), ("apache", "sqlite"))


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[BrokerThread]:
    """A Headrace broker for all tests of this folder; topics tell them apart."""
    with BrokerThread() as broker:
        yield broker


@pytest.fixture(params=PAIRS, ids="-".join)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """The two worlds in which everything must hold."""
    yield from _world(request, *request.param)


@pytest.fixture(params=ALL_PAIRS, ids="-".join)
def any_world(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """All four worlds."""
    yield from _world(request, *request.param)


@pytest.fixture
def redis_harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Headrace with Redis, for what has nothing to do with the kind of broker."""
    yield from _world(request, "headrace", "redis")


def _world(request: pytest.FixtureRequest, kafka: str, tokens: str) -> Iterator[Harness]:
    if kafka == "apache":
        apache: ApacheKafka = request.getfixturevalue("apache_kafka")
        bootstrap = apache.bootstrap
    else:
        broker: BrokerThread = request.getfixturevalue("shared_broker")
        bootstrap = broker.bootstrap
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/tokens.db"
        if tokens == "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            url = server.url
        harness = Harness(bootstrap, url, Path(folder))
        with harness.stack:
            yield harness
