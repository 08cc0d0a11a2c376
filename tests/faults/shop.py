"""The app under test, run by `headrace run tests.faults.shop:app` in a folder with a shop.json.

Orders are billed, a receipt goes out by the outbox with each bill, and receipts are booked. Some
orders fail a few times, some forever, some cannot be read at all.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests.faults import mutants
from tests.faults.steps import Fault, Faults

from headrace.client.message import Message
from headrace.handlers import background, dead_letters
from headrace.handlers import retries as retry_job
from headrace.handlers.app import App
from headrace.handlers.policies import Backoff, Retry
from headrace.outbox import relay
from headrace.store import Transaction

CONFIG = "shop.json"
FAILURES = "failures.log"
BILL, BOOK = "bill", "book"
ORDERS, RECEIPTS = "orders", "receipts"
IN_PLACE, ATTEMPTS = 1, 3
# How often an order must fail before it may be given up: at once, in place, from the table.
TRIES = 1 + IN_PLACE + ATTEMPTS
FLAKY_FAILURES = 3
SLOW_SECONDS = 0.02

TABLES = {
    "sqlite": "CREATE TABLE IF NOT EXISTS effects (at INTEGER PRIMARY KEY AUTOINCREMENT, "
    "handler TEXT, id TEXT, key TEXT, n INTEGER)",
    "postgresql": "CREATE TABLE IF NOT EXISTS effects (at BIGSERIAL PRIMARY KEY, "
    "handler TEXT, id TEXT, key TEXT, n INTEGER)",
}
_EFFECT = "INSERT INTO effects (handler, id, key, n) VALUES (:handler, :id, :key, :n)"


@dataclass
class ShopConfig:
    """What a test tells the process; written to its folder as JSON."""

    bootstrap: str
    store: str
    faults: list[Fault] = field(default_factory=list)
    mutant: str = ""
    # Before the names of topics and groups, for several shops on one broker.
    prefix: str = ""
    # Of the consumers, by Kafka's names.
    settings: dict[str, Any] = field(default_factory=dict)
    lease_ms: int = 1_000
    # Whether the app works its outbox itself.
    relays: bool = True

    def write(self, folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> ShopConfig:
        given = json.loads((folder / CONFIG).read_text())
        return cls(**{**given, "faults": [Fault(**fault) for fault in given["faults"]]})


class Order(msgspec.Struct):
    """An order, or a receipt for it: the n-th of its key, and how it behaves."""

    id: str
    key: str
    n: int
    kind: str = "ok"  # "ok", "flaky", "poison" or "slow"


class OrderRefused(Exception):
    """What the handlers raise."""


class Shop:
    """The state of one process: what failed here so far, and the file that outlives it."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._failed: Counter[tuple[str, str]] = Counter()
        self._never = threading.Event()
        self._log = os.open(FAILURES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def judge(self, handler: str, order: Order) -> None:
        """Fail as the order's kind says, and write that down first."""
        if order.kind == "slow":
            self._never.wait(SLOW_SECONDS)
        place = (handler, order.id)
        flaky = order.kind == "flaky" and self._failed[place] < FLAKY_FAILURES
        if flaky or (order.kind == "poison" and handler == BILL):
            self._failed[place] += 1
            os.write(self._log, f"{handler} {order.id}\n".encode())
            raise OrderRefused(order.id)


def prepare(config: ShopConfig) -> Faults:
    """Make this process break as it should, and forget the dead sooner than an operator would."""
    if config.mutant:
        mutants.install(config.mutant)
    faults = Faults(config.faults)
    faults.install()
    retry_job.RetryJob.__init__.__kwdefaults__ = {"lease_ms": config.lease_ms}
    dead_letters.LATE_MS = config.lease_ms
    relay.LEASE_MS = config.lease_ms
    return faults


def make_app(config: ShopConfig) -> App:
    faults = prepare(config)
    shop = Shop(faults)
    app = App(config.bootstrap, store=config.store)
    retry = Retry(in_place=IN_PLACE, delay="5ms", then=Backoff("20ms", "100ms", attempts=ATTEMPTS))
    options: dict[str, Any] = {
        "order": "key",
        "lanes": 8,
        "retry": retry,
        "start": "earliest",
        "settings": config.settings,
    }

    @app.handler(config.prefix + ORDERS, name=BILL, group=f"{config.prefix}billing", **options)
    def bill(order: Order, tx: Transaction, message: Message) -> None:
        faults.reach("handler begun")
        shop.judge(BILL, order)
        tx.execute(_EFFECT, _row(BILL, order))
        tx.send(config.prefix + RECEIPTS, msgspec.json.encode(order), key=order.key, id=order.id)
        faults.reach("handled")

    @app.handler(config.prefix + RECEIPTS, name=BOOK, group=f"{config.prefix}books", **options)
    def book(receipt: Order, tx: Transaction, message: Message) -> None:
        shop.judge(BOOK, receipt)
        tx.execute(_EFFECT, _row(BOOK, receipt))

    if not config.relays:
        # Another process does.
        background.BackgroundTasks._relay = lambda *_: None  # type: ignore[method-assign]
    return app


def _row(handler: str, order: Order) -> dict[str, Any]:
    return {"handler": handler, "id": order.id, "key": order.key, "n": order.n}


def __getattr__(name: str) -> App:
    # Made when it is asked for, so that tests can import the words of this module.
    if name != "app":
        raise AttributeError(name)
    return make_app(ShopConfig.read(Path()))
