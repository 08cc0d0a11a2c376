"""Half messages while everything is killed: never visible too soon, never orphaned, never twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.faults.half_checker import half_anomalies
from tests.faults.half_harness import HalfHarness
from tests.faults.half_process import SERVICE_STEPS, SHOP_STEPS
from tests.faults.processes import BrokerProcess
from tests.faults.shop_harness import BROKER_SETTINGS
from tests.postgres import Postgres, programs

ORDERS_PER_FAULT = 5
# 3 rounds of 40 faults on each kind of broker.
LONG_ROUNDS = 3
LONG_FAULTS = 40
LONG_ORDERS_PER_FAULT = 50

needs_postgres = pytest.mark.skipif(
    programs() is None, reason="PostgreSQL is not installed: apt-get install postgresql"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS) as broker:
        yield broker


@pytest.fixture
def apache_broker(tmp_path: Path) -> Iterator[ApacheKafka]:
    settings = dict(setting.split("=") for setting in BROKER_SETTINGS)
    with ApacheKafka(settings=settings, data_dir=tmp_path / "kafka") as broker:
        yield broker


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.mark.parametrize(
    ("done", "seen", "undecided", "names"),
    [
        (["a", "b"], ["b", "a"], [], []),
        (["a"], ["a", "b"], [], ["half-visible"]),
        (["a", "b"], ["a"], [], ["half-orphan"]),
        (["a"], ["a"], ["b"], ["half-orphan"]),
        (["a"], ["a", "a"], [], ["dup-effect"]),
    ],
)
def test_the_checker_finds_each_anomaly(
    done: list[str], seen: list[str], undecided: list[str], names: list[str]
) -> None:
    assert [anomaly.name for anomaly in half_anomalies(done, seen, undecided)] == names


def test_every_step_is_a_function_of_the_layer() -> None:
    for step in (*SHOP_STEPS, *SERVICE_STEPS):
        if step.target:
            step.resolve()


def shop_dies(harness: HalfHarness, step: str) -> None:
    """One shop dies at a step; the other answers for it."""
    shop = harness.chance.choice(harness.shops)
    shop.kill()
    shop.start(step, harness.chance.randint(1, 3))
    shop.wait_died(step)
    harness.kills += 1
    shop.start()


def service_dies(harness: HalfHarness, step: str) -> None:
    """The service dies at a step, and another takes over."""
    harness.service.kill()
    harness.service.start(step, harness.chance.randint(1, 3))
    harness.service.wait_died(step)
    harness.kills += 1
    harness.service.start()


def crash(harness: HalfHarness, what: BrokerProcess | ApacheKafka | Postgres) -> None:
    """The broker or the database dies while all are at work."""
    if isinstance(what, Postgres):
        what.restart()
    else:
        what.kill()
        what.start()
    harness.kills += 1


@needs_postgres
@pytest.mark.timeout(600)
def test_half_messages_survive_the_death_of_everybody(
    tmp_path: Path, broker: BrokerProcess, postgres: Postgres
) -> None:
    with HalfHarness(tmp_path, broker.bootstrap, postgres.database()) as harness:
        harness.service.start()
        for shop in harness.shops:
            shop.start()
        harness.wait_sold(ORDERS_PER_FAULT)
        for step in SHOP_STEPS:
            shop_dies(harness, step.name)
        for step in SERVICE_STEPS:
            service_dies(harness, step.name)
        for what in (broker, postgres):
            crash(harness, what)
            harness.wait_sold(ORDERS_PER_FAULT)
        assert harness.finish() == []
        assert harness.kills == len(SHOP_STEPS) + len(SERVICE_STEPS) + 2


@needs_postgres
@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(LONG_ROUNDS))
@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_many_deaths(
    tmp_path: Path, request: pytest.FixtureRequest, postgres: Postgres, kind: str, seed: int
) -> None:
    broker: BrokerProcess | ApacheKafka = request.getfixturevalue(
        "broker" if kind == "headrace" else "apache_broker"
    )
    made = HalfHarness(
        tmp_path, broker.bootstrap, postgres.database(), seed, may_leave_hanging=kind == "apache"
    )
    with made as harness:
        harness.service.start()
        harness.spare.start()
        for shop in harness.shops:
            shop.start()
        for _ in range(LONG_FAULTS):
            match harness.chance.choice(["shop", "service", "instance", "broker", "postgres"]):
                case "shop":
                    shop_dies(harness, harness.chance.choice(SHOP_STEPS).name)
                case "service":
                    # Alone, so that it comes to every step.
                    harness.spare.kill()
                    service_dies(harness, harness.chance.choice(SERVICE_STEPS).name)
                    harness.spare.start()
                case "instance":
                    victim = harness.chance.choice([harness.service, harness.spare])
                    victim.kill()
                    harness.wait_sold(LONG_ORDERS_PER_FAULT)
                    victim.start()
                    harness.kills += 1
                case "broker":
                    crash(harness, broker)
                case _:
                    crash(harness, postgres)
            harness.wait_sold(LONG_ORDERS_PER_FAULT)
        harness.spare.stop()
        assert harness.finish() == []
        assert harness.kills * LONG_ROUNDS >= 100
