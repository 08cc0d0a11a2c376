"""The broker is killed, or PostgreSQL crashes, while an app is at each step of a message's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.fork_server import ForkServer
from tests.faults.processes import BrokerProcess
from tests.faults.shop_harness import BROKER_SETTINGS, ShopHarness
from tests.faults.shop_process import ShopProcess
from tests.faults.step_signal import StepSignal
from tests.faults.steps import HANDLER_STEPS, Fault
from tests.postgres import Postgres, programs

ORDERS_PER_ROUND = 60
RING_SECONDS = 1.0
# Orders are sent until every step has come, but not forever.
SILENT_ROUNDS_MAX = 40

LONG_ROUNDS = 4
LONG_ORDERS_PER_ROUND = 4_000
LONG_FAILING = 0.01

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


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def outage_at_every_step(
    harness: ShopHarness,
    outages: list[Callable[[], None]],
    orders_per_round: int,
    failing: float = 0.25,
) -> ShopProcess:
    """One process comes by every step; it waits there while something else crashes."""
    with StepSignal() as signal:
        faults = [
            Fault(step.name, harness.chance.randint(1, 2), "tell", signal.port)
            for step in HANDLER_STEPS
        ]
        app = harness.start(faults)
        left = {step.name for step in HANDLER_STEPS}
        silent_rounds = 0
        harness.order(orders_per_round, flaky=0.6 * failing, poison=0.4 * failing)
        while left and silent_rounds < SILENT_ROUNDS_MAX:
            with signal.answer(RING_SECONDS) as step:
                if step:
                    left.remove(step)
                    outages[harness.kills % len(outages)]()
                    harness.kills += 1
            if not step:
                silent_rounds += 1
                harness.order(orders_per_round, flaky=0.6 * failing, poison=0.4 * failing)
        assert not left, f"{left} were not passed: {app.complaint()}"
    return app


@needs_postgres
@pytest.mark.timeout(300)
def test_an_app_outlives_its_broker_and_its_database_at_every_step(
    tmp_path: Path, fork_server: ForkServer, broker: BrokerProcess, postgres: Postgres
) -> None:
    def restart_broker() -> None:
        broker.kill()
        broker.start()

    with ShopHarness(tmp_path, fork_server, broker.bootstrap, postgres.database()) as harness:
        outages = [restart_broker, postgres.restart]
        app = outage_at_every_step(harness, outages, ORDERS_PER_ROUND)
        assert harness.finish(), app.complaint()
        assert harness.anomalies() == []
        assert app.stop() == 0


@needs_postgres
@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("what", ["broker", "postgres"])
@pytest.mark.parametrize("seed", range(LONG_ROUNDS))
def test_many_outages_and_many_messages(
    tmp_path: Path,
    fork_server: ForkServer,
    broker: BrokerProcess,
    postgres: Postgres,
    seed: int,
    what: str,
) -> None:
    def restart_broker() -> None:
        broker.kill()
        broker.start()

    with ShopHarness(
        tmp_path, fork_server, broker.bootstrap, postgres.database(), seed=seed, keys=1_000
    ) as harness:
        outage = restart_broker if what == "broker" else postgres.restart
        app = outage_at_every_step(harness, [outage], LONG_ORDERS_PER_ROUND, LONG_FAILING)
        assert harness.finish(), app.complaint()
        assert harness.anomalies() == []
