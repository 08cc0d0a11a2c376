"""A shop in a folder of its own: broker, store, app processes, customers, and what became of all.

Everything is real: the app is `headrace run`, the broker and the database are processes, and what
is checked is what they hold at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import create_engine, text
from tests.faults.clients import create_topic
from tests.faults.fork_server import RUN, ForkServer
from tests.faults.handlers_checker import Event, HandlerAnomaly, HandlersChecker
from tests.faults.shop import (
    BILL,
    BOOK,
    FAILURES,
    ORDERS,
    RECEIPTS,
    TABLES,
    TRIES,
    Order,
    ShopConfig,
)
from tests.faults.shop_process import NOTE, ShopProcess
from tests.faults.steps import Fault

from headrace.store import open_store

PARTITIONS = 2
END_SECONDS = 60.0
# When nothing has moved for this long, nothing will.
STILL_SECONDS = 25.0
DELIVERY_MS = 120_000
# Less than a broker allows by default, for tests in which somebody has to be missed.
SESSION_MS = 3_000
BROKER_SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
JUNK = b"\xff not an order"


class ShopHarness:
    """One shop through many faults."""

    def __init__(
        self,
        folder: Path,
        fork_server: ForkServer,
        bootstrap: str,
        store_url: str,
        *,
        seed: int = 1,
        prefix: str = "",
        keys: int = 10,
    ):
        self.folder = folder
        self._fork_server = fork_server
        self.config = ShopConfig(
            bootstrap,
            store_url,
            prefix=prefix,
            settings={
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "metadata.max.age.ms": 5_000,
            },
        )
        self.chance = random.Random(seed)
        self.kills = 0
        self._sent: list[tuple[Order, bool]] = []
        self._counts = [0] * keys
        self._processes: list[ShopProcess] = []
        self._pause = threading.Event()  # never set: waited on with a timeout, to let time pass
        self._failed_sends: list[Any] = []
        self._engine = create_engine(store_url)
        self._store = open_store(store_url)
        self._store.create()
        with self._store.begin() as tx:
            tx.execute(TABLES[tx.kind])
        self._topics = [prefix + ORDERS, prefix + RECEIPTS]
        for topic in self._topics:
            create_topic(bootstrap, topic, PARTITIONS)
            create_topic(bootstrap, f"{topic}.dlq", PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 100,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    @property
    def sent(self) -> int:
        return len(self._sent)

    def __enter__(self) -> ShopHarness:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        self._store.close()
        self._engine.dispose()

    def start(
        self,
        faults: Sequence[Fault] = (),
        *,
        mutant: str = "",
        instance: str = "one",
        arguments: Sequence[str] = (),
    ) -> ShopProcess:
        """Start an app process; one with the same instance takes over from a dead one at once."""
        folder = self.folder / instance
        folder.mkdir(parents=True, exist_ok=True)
        config = replace(
            self.config,
            faults=[replace(fault, note=str(folder / NOTE)) for fault in faults],
            mutant=mutant,
            settings={**self.config.settings, "group.instance.id": instance},
        )
        config.write(folder)
        self._processes.append(ShopProcess(self._fork_server, folder, arguments or RUN))
        return self._processes[-1]

    def start_relay(self, faults: Sequence[Fault] = ()) -> ShopProcess:
        """Start a process that works the outbox; the apps leave it alone from now on."""
        self.config = replace(self.config, relays=False)
        command = ("outbox", "relay", "--store", self.config.store)
        return self.start(
            faults,
            instance="relay",
            arguments=(*command, "--bootstrap", self.config.bootstrap),
        )

    def order(
        self, count: int, *, flaky: float = 0.05, poison: float = 0.02, others: str = "ok"
    ) -> None:
        """Send orders; each has a kind by chance, and half of the poisonous ones cannot be read."""
        for _ in range(count):
            key = self.chance.randrange(len(self._counts))
            self._counts[key] += 1
            draw = self.chance.random()
            is_junk = draw < poison / 2
            kind = "poison" if draw < poison else "flaky" if draw < poison + flaky else others
            order = Order(f"o{len(self._sent)}", f"k{key}", self._counts[key], kind)
            self._sent.append((order, is_junk))
            value = JUNK if is_junk else msgspec.json.encode(order)
            self._send(order, value)
        assert self._producer.flush(DELIVERY_MS / 1000) == 0
        assert self._failed_sends == []

    def finish(self, *, still_seconds: float = STILL_SECONDS) -> bool:
        """Wait until every order has come to its end; False when nothing moves any more."""
        return self.wait_for(self._is_over, still_seconds, progress=self._progress)

    def wait_for(
        self,
        condition: Callable[[], bool],
        still_seconds: float,
        progress: Callable[[], object] | None = None,
    ) -> bool:
        """Wait for a condition; False when there was no progress for this long."""
        last: object = None
        until_s = time.monotonic() + still_seconds
        while not condition():
            now = progress() if progress else None
            if now != last:
                last, until_s = now, time.monotonic() + still_seconds
            if time.monotonic() > until_s:
                return False
            self._pause.wait(0.05)
        return True

    def anomalies(self) -> list[HandlerAnomaly]:
        """The verdict over all that has happened in this harness."""
        checker = HandlersChecker()
        for event in self.history():
            checker.add(event)
        return checker.anomalies()

    def history(self) -> Iterator[Event]:
        """What was sent, what failed, what it did, and what the store and the topics hold."""
        for order, is_junk in self._sent:
            yield Event("sent", BILL, order.id, order.key, order.n, 0 if is_junk else TRIES)
        for log in self.folder.glob(f"*/{FAILURES}"):
            for line in log.read_text().splitlines():
                handler, id = line.split(" ")
                yield Event("failed", handler, id)
        with self._engine.connect() as connection:
            for row in connection.execute(
                text("SELECT handler, id, key, n FROM effects ORDER BY at")
            ):
                handler, id, key, n = row
                yield Event("effect", handler, id, key, n)
                if handler == BILL:
                    # Each bill has its receipt.
                    yield Event("sent", BOOK, id, key, n, TRIES)
            for kind, table in (
                ("parked", "headrace_retries"),
                ("indexed", "headrace_dead_letters"),
            ):
                for handler, id in connection.execute(text(f"SELECT handler, id FROM {table}")):
                    yield Event(kind, handler, id)  # type: ignore[arg-type]
        copies: set[str] = set()
        for headers in _read_headers(self.config.bootstrap, self._topics[1]):
            id = headers["headrace-id"].decode()
            if id in copies:
                # The relay died between sending it and noting that: it is there once more.
                yield Event("sent", BOOK, id, tries=TRIES)
            copies.add(id)
        for topic in self._topics:
            for headers in _read_headers(self.config.bootstrap, f"{topic}.dlq"):
                handler = headers["headrace-handler"].decode()
                yield Event("dead", handler, headers["headrace-id"].decode())

    def _progress(self) -> tuple[int, ...]:
        """Effects of both handlers, dead letters, parked messages, and rows to be sent."""
        questions = (
            f"SELECT count(*) FROM effects WHERE handler = '{BILL}'",
            f"SELECT count(*) FROM effects WHERE handler = '{BOOK}'",
            f"SELECT count(*) FROM headrace_dead_letters WHERE handler = '{BILL}'",
            f"SELECT count(*) FROM headrace_dead_letters WHERE handler = '{BOOK}'",
            "SELECT count(*) FROM headrace_dead_letters WHERE state = 'new'",
            "SELECT count(*) FROM headrace_retries",
        )
        try:
            with self._engine.connect() as connection:
                return tuple(connection.execute(text(ask)).scalar_one() for ask in questions)
        except Exception:
            # The database is restarting.
            return ()

    def _is_over(self) -> bool:
        counts = self._progress()
        if not counts:
            return False
        billed, booked, dead_bills, dead_books, unsent, parked = counts
        return (
            billed + dead_bills >= self.sent
            and booked + dead_books >= billed
            and unsent == 0
            and parked == 0
        )

    def _send(self, order: Order, value: bytes) -> None:
        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                self._failed_sends.append(error)

        while True:
            try:
                self._producer.produce(
                    self._topics[0],
                    value,
                    order.key,
                    headers={"headrace-id": order.id},
                    on_delivery=on_delivery,
                )
                return
            except BufferError:
                self._producer.poll(0.1)


def _read_headers(bootstrap: str, topic: str) -> Iterator[dict[str, bytes]]:
    """The headers of everything in a topic, as a fresh reader finds it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"final-{topic}", "log_level": 0}
    )
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, high = consumer.get_watermark_offsets(place, timeout=END_SECONDS)
            consumer.assign([place])
            position = 0
            until_s = time.monotonic() + END_SECONDS
            while position < high:
                assert time.monotonic() < until_s, f"{topic}-{partition} stops at {position}"
                for message in consumer.consume(min(1_000, high - position), timeout=1.0):
                    position = message.offset() + 1
                    yield dict(message.headers() or [])
    finally:
        consumer.close()
