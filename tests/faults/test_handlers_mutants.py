"""A layer that is broken in one way: the same harness and the same checker must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.fork_server import ForkServer
from tests.faults.mutants import MUTANTS
from tests.faults.processes import BrokerProcess
from tests.faults.shop_harness import BROKER_SETTINGS, ShopHarness
from tests.faults.steps import Fault

STILL_SECONDS = 4.0
# Whether a fault comes at a bad moment for a mutant is a matter of chance on a busy machine.
ATTEMPTS_MAX = 3


@dataclass(frozen=True)
class Case:
    """What is found wrong, the fault that shows it if it takes one, and orders that it takes."""

    anomaly: str
    fault: Fault | None = None
    orders: int = 60
    flaky: float = 0.2
    poison: float = 0.1
    others: str = "ok"


CAUGHT = {
    "no_claim": Case("dup-effect", Fault("store committed", nth=3)),
    "claim_apart": Case("lost-retry"),
    # Slow ones, so that some are not done when offsets are committed; the second time, because
    # commits are not waited for and the first is surely there by then.
    "commit_ahead": Case("unhandled", Fault("offsets committed", nth=2), 1_000, 0.0, 0.0, "slow"),
    "drop_parked": Case("lost-retry"),
    "forget_keys": Case("lane-reorder", None, 200, 0.3),
    "dead_at_once": Case("dlq-early"),
    "letters_unsent": Case("dlq-loss"),
    "letters_unindexed": Case("dlq-loss"),
    "remove_first": Case("lost-retry"),
    "marked_unsent": Case("unhandled"),
}


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture(scope="module")
def broker_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("mutants")
    with BrokerProcess(folder / "data", settings=BROKER_SETTINGS) as broker:
        yield broker


def test_every_mutant_is_tried() -> None:
    assert set(CAUGHT) == set(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(
    tmp_path: Path, fork_server: ForkServer, broker_of_all: BrokerProcess, mutant: str
) -> None:
    case = CAUGHT[mutant]
    for attempt in range(ATTEMPTS_MAX):
        name = f"{mutant}-{attempt}"
        url = f"sqlite:///{tmp_path}/{name}.db"
        bootstrap = broker_of_all.bootstrap
        with ShopHarness(
            tmp_path / name, fork_server, bootstrap, url, prefix=f"{name}-"
        ) as harness:
            harness.order(case.orders, flaky=case.flaky, poison=case.poison, others=case.others)
            app = harness.start([case.fault] if case.fault else [], mutant=mutant)
            if case.fault:
                app.wait_died(
                    case.fault.step,
                    lambda: harness.order(case.orders, others=case.others),
                )
                app = harness.start(mutant=mutant)
            harness.finish(still_seconds=STILL_SECONDS)
            found = {anomaly.name for anomaly in harness.anomalies()}
        if case.anomaly in found:
            return
    raise AssertionError(f"{case.anomaly} is not in {found}: {app.complaint()}")
