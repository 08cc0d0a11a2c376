"""A process under test: a half service, or a shop that sells with half messages and is asked.

python -m tests.faults.half_process CONFIG.json
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.steps import Step

from headrace.cli.common.processes import on_stop
from headrace.handlers.app import App
from headrace.handlers.half.half import Half
from headrace.ledger import clients
from headrace.ledger.half.machine import HalfLimits
from headrace.ledger.half.service import half_service
from headrace.store import Store, open_store

TARGET, GROUP = "orders", "shop"
TABLE = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)"
# Many checks, so that an outage parks nothing; soon, so that the dead are soon decided for.
LIMITS = HalfLimits(first_check_ms=1_000, check_every_ms=500, checks_max=1_000)
# How soon the dead are missed.
SESSION_MS = 2_000
PAUSE_SECONDS = 0.005
TIMEOUT = "5s"
# Written by the test, and by each shop when it has sold its last.
STOP_SELLING, CLOSED = "stop-selling", "closed"

SHOP_STEPS = (
    Step("prepared"),
    Step("joined"),
    Step("local commit done"),
    Step("raised"),
    Step("decided"),
    Step("asked", "handlers.half.checkers:has_committed", "before"),
    Step("knows", "handlers.half.checkers:has_committed", "after"),
)
SERVICE_STEPS = (
    Step("taking in", "ledger.intake:Intake._begin", "after"),
    Step("taken in", "ledger.intake:Intake._move", "after"),
    Step("acting", "ledger.owner:OwnedPartition.begin", "after"),
    Step("acted", "ledger.owner:OwnedPartition.commit", "after"),
    Step("noted", "ledger.state_partition:StatePartition.committed", "after"),
)
STEPS = {step.name: step for step in (*SHOP_STEPS, *SERVICE_STEPS)}


@dataclass
class HalfConfig:
    """What a test tells a process."""

    role: str
    name: str
    bootstrap: str
    store: str
    folder: str
    # Dies at the n-th passage of a step, if one is named.
    die_at: str = ""
    nth: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


class Death:
    """Ends this process at a step, and leaves a note."""

    def __init__(self, config: HalfConfig) -> None:
        self._step = config.die_at
        self._left = config.nth
        self._note = Path(config.folder) / f"{config.name}.died"
        self._lock = threading.Lock()

    def reach(self, step: str) -> None:
        if step != self._step:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._note.write_text(step)
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Wrap the function of the step."""
        step = STEPS.get(self._step)
        if step is None or not step.target:
            return
        owner, name = step.resolve()
        original: Callable[..., Any] = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if step.side == "before":
                self.reach(step.name)
            answer = original(*args, **kwargs)
            if step.side == "after":
                self.reach(step.name)
            return answer

        setattr(owner, name, wrapper)


class Shop:
    """Sells until it is told to stop; its store tells what became of each order."""

    def __init__(self, config: HalfConfig, death: Death) -> None:
        self.config = config
        self.death = death
        self.app = App(config.bootstrap, store=config.store, settings=config.settings)
        self.app.half_store_checker(GROUP)
        self.store: Store = open_store(config.store)

    def sell(self, stop: threading.Event) -> None:
        folder = Path(self.config.folder)
        number = 0
        while not stop.wait(PAUSE_SECONDS):
            if (folder / STOP_SELLING).exists():
                (folder / f"{self.config.name}.{CLOSED}").touch()
                continue
            number += 1
            id = f"{self.config.name}-{os.getpid()}-{number}"
            try:
                with self.app.half(TARGET, {"id": id}, id=id, timeout=TIMEOUT) as half:
                    self.order(half, number)
            except Exception as problem:
                logging.info("%s was not sold: %s", id, problem)
            self.death.reach("decided")

    def order(self, half: Half, number: int) -> None:
        self.death.reach("prepared")
        with self.store.begin() as tx:
            half.join(tx)
            tx.execute("INSERT INTO orders (id) VALUES (:id)", {"id": half.id})
            self.death.reach("joined")
            if number % 5 == 0:
                raise LookupError("sold out")
        self.death.reach("local commit done")
        if number % 7 == 0:
            # After the commit: the order stands, whatever the block says.
            self.death.reach("raised")
            raise OSError("the printer is on fire")


def main() -> None:
    config = HalfConfig(**json.loads(Path(sys.argv[1]).read_text()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    clients.SESSION_MS = SESSION_MS
    death = Death(config)
    death.install()
    stop = threading.Event()
    on_stop(stop.set)
    (Path(config.folder) / f"{config.name}.ready").touch()
    if config.role == "service":
        settings = {"bootstrap.servers": config.bootstrap, **config.settings}
        service = half_service(settings, limits=LIMITS)
        service.start()
        stop.wait()
        service.stop()
    else:
        shop = Shop(config, death)
        with shop.app:
            shop.sell(stop)


if __name__ == "__main__":
    main()
