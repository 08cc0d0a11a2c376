"""Fixtures for databases, Redis and brokers, each started once in a run; see conftest.py."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.apache_kafka import QUICK_JVM, ApacheKafka
from tests.postgres import Postgres, programs
from tests.redis_server import RedisServer
from tests.zookeeper import ZooKeeper

from headrace.testing import BrokerThread

# In full: what a user starts with, and what it may grow into. The others as a smoke.
PAIRS = (("headrace", "sqlite"), ("apache", "postgres"))
ALL_PAIRS = (*PAIRS, ("headrace", "postgres"), ("apache", "sqlite"))
DATABASES = ("sqlite", "postgres")
TIMEOUT_SECONDS = 60.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Pair:
    """A Kafka and a fresh database."""

    kafka: str
    database: str
    bootstrap: str
    store_url: str

    def topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic that no other test has, and return its name."""
        own_name = f"{name}-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(own_name, partitions, 1)])[own_name].result(TIMEOUT_SECONDS)
        return own_name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server."""
    if shutil.which("redis-server") is None:
        pytest.skip("Redis is not installed")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """An Apache Kafka node."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    with ApacheKafka(settings=settings, heap="512m", jvm=QUICK_JVM) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """A ZooKeeper server."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    with ZooKeeper() as server:
        yield server


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes an empty database of a kind and returns its URL."""

    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'store-{next(_numbers)}.db'}"
        server: Postgres = request.getfixturevalue("postgres")
        return server.database()

    return make


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """The URL of an empty database, once for each kind."""
    return new_database(request.param)


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Pair]:
    """The two pairs on which everything must hold."""
    yield from _pair(request, new_database)


@pytest.fixture(params=ALL_PAIRS, ids="-".join)
def any_pair(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Pair]:
    """All four pairs, for a smoke."""
    yield from _pair(request, new_database)


def _pair(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Pair]:
    kafka, database = request.param
    if kafka == "apache":
        server: ApacheKafka = request.getfixturevalue("apache_kafka")
        yield Pair(kafka, database, server.bootstrap, new_database(database))
        return
    with BrokerThread() as broker:
        yield Pair(kafka, database, broker.bootstrap, new_database(database))
