"""kill -9 of an app at every step between 'received' and 'committed': nothing lost or repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.faults.fork_server import ForkServer
from tests.faults.processes import BrokerProcess
from tests.faults.shop_harness import BROKER_SETTINGS, ShopHarness
from tests.faults.steps import HANDLER_STEPS, RELAYED, Fault, Step
from tests.postgres import Postgres, programs

ORDERS_PER_KILL = 60
FLAKY, POISON = 0.15, 0.1

# 240 kills and 1.2 M orders.
LONG_ROUNDS = 8
LONG_ORDERS_PER_KILL = 5_000
LONG_FLAKY, LONG_POISON = 0.004, 0.002
LONG_KEYS = 1_000


needs_postgres = pytest.mark.skipif(
    programs() is None, reason="PostgreSQL is not installed: apt-get install postgresql"
)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS) as broker:
        yield broker


def test_every_step_is_a_function_of_the_layer() -> None:
    for step in HANDLER_STEPS:
        if step.target:
            step.resolve()
    assert len({step.name for step in HANDLER_STEPS}) == len(HANDLER_STEPS)


def kill_at_every_step(
    harness: ShopHarness,
    steps: Sequence[Step] = HANDLER_STEPS,
    orders_per_kill: int = ORDERS_PER_KILL,
    flaky: float = FLAKY,
    poison: float = POISON,
) -> None:
    """Let process after process die, each at the next step; then look at what the last one does."""
    for step in harness.chance.sample(steps, len(steps)):
        # The relay may do all it has in one turn.
        nth = 1 if step in RELAYED else harness.chance.randint(1, 3)
        app = harness.start([Fault(step.name, nth)])
        # Enough of each kind that every step is passed; some more where all of them were done
        # in fewer turns than the step wants.
        harness.order(orders_per_kill, flaky=flaky, poison=poison)
        app.wait_died(step.name, lambda: harness.order(ORDERS_PER_KILL, flaky=FLAKY, poison=POISON))
        harness.kills += 1
    app = harness.start()
    assert harness.finish(), app.complaint()
    assert harness.anomalies() == []
    assert harness.kills == len(steps)
    assert app.stop() == 0


@pytest.mark.timeout(900)
def test_an_app_killed_at_every_step_loses_and_repeats_nothing(
    tmp_path: Path, fork_server: ForkServer, broker: BrokerProcess
) -> None:
    with ShopHarness(
        tmp_path, fork_server, broker.bootstrap, f"sqlite:///{tmp_path}/shop.db"
    ) as harness:
        kill_at_every_step(harness)


@needs_postgres
@pytest.mark.timeout(900)
def test_on_apache_kafka_and_postgresql_too(
    tmp_path: Path, fork_server: ForkServer, apache_kafka: ApacheKafka, postgres: Postgres
) -> None:
    bootstrap, url = apache_kafka.bootstrap, postgres.database()
    with ShopHarness(tmp_path, fork_server, bootstrap, url, prefix="kills-") as harness:
        # Every fifth, in the test command; the long form has them all.
        kill_at_every_step(harness, HANDLER_STEPS[::5])


@pytest.mark.timeout(900)
def test_a_relay_of_its_own_is_killed_at_every_step(
    tmp_path: Path, fork_server: ForkServer, broker: BrokerProcess
) -> None:
    with ShopHarness(
        tmp_path, fork_server, broker.bootstrap, f"sqlite:///{tmp_path}/shop.db"
    ) as harness:
        for number, step in enumerate(RELAYED):
            relay = harness.start_relay([Fault(step.name)])
            if number == 0:
                app = harness.start()
            harness.order(ORDERS_PER_KILL)
            relay.wait_died(step.name, lambda: harness.order(ORDERS_PER_KILL))
        relay = harness.start_relay()
        assert harness.finish(), app.complaint() + relay.complaint()
        assert harness.anomalies() == []
        assert relay.stop() == 0


@pytest.mark.timeout(900)
def test_a_process_takes_over_from_one_that_was_killed(
    tmp_path: Path, fork_server: ForkServer, broker: BrokerProcess
) -> None:
    """Two processes share the groups; the dead one's partitions, lanes and leases move."""
    chance = random.Random(2)
    with ShopHarness(
        tmp_path, fork_server, broker.bootstrap, f"sqlite:///{tmp_path}/shop.db"
    ) as harness:
        first = harness.start(instance="one")
        second = harness.start(instance="two")
        harness.order(300, flaky=0.1)
        chance.choice([first, second]).kill()
        harness.order(300, flaky=0.1)
        assert harness.finish(), first.complaint() + second.complaint()
        assert harness.anomalies() == []


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(LONG_ROUNDS))
def test_many_kills_and_many_messages(
    tmp_path: Path, fork_server: ForkServer, broker: BrokerProcess, seed: int
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    with ShopHarness(
        tmp_path, fork_server, broker.bootstrap, url, seed=seed, keys=LONG_KEYS
    ) as harness:
        kill_at_every_step(harness, HANDLER_STEPS, LONG_ORDERS_PER_KILL, LONG_FLAKY, LONG_POISON)
        assert harness.kills * LONG_ROUNDS >= 200
        assert harness.sent * LONG_ROUNDS >= 1_000_000


@needs_postgres
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_step_on_apache_kafka_and_postgresql(tmp_path: Path, fork_server: ForkServer) -> None:
    settings = dict(setting.split("=") for setting in BROKER_SETTINGS)
    with (
        ApacheKafka(settings=settings) as kafka,
        Postgres() as postgres,
        ShopHarness(tmp_path, fork_server, kafka.bootstrap, postgres.database()) as harness,
    ):
        kill_at_every_step(harness)
