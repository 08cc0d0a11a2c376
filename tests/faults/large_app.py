"""The app under test, run by `headrace run tests.faults.large_app:app` in a folder with its JSON.

Each large message that is handled leaves its digest behind, once; some fail at first and wait in
the retry table meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.client.message import Message
from headrace.handlers import App, Backoff, Retry
from headrace.handlers import retries as retry_job
from headrace.large import Large
from headrace.store import Transaction

CONFIG = "large_app.json"
TOPIC, GROUP = "large", "readers"
CHUNK_BYTES = 20_000
PIECE_BYTES = 10_000
FLAKY_EVERY = 7
FLAKY_FAILURES = 2
LEASE_MS = 1_000

TABLE = "CREATE TABLE IF NOT EXISTS handled (id TEXT, digest TEXT)"


@dataclass
class LargeConfig:
    """What a test tells the processes; written to their folder as JSON."""

    bootstrap: str
    store: str
    way: str
    claims: str
    messages: int
    instance: str = "one"

    def write(self, folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> LargeConfig:
        return cls(**json.loads((folder / CONFIG).read_text()))

    @property
    def large(self) -> Large:
        return Large(
            way=self.way,
            claims=self.claims,
            above_bytes=CHUNK_BYTES,
            chunk_bytes=CHUNK_BYTES,
            # Little, so that most of it goes through files.
            memory_bytes=4 * CHUNK_BYTES,
        )


def body(number: int) -> Iterator[bytes]:
    """The bytes of a message, from 3 to 12 chunks long."""
    chance = random.Random(number)
    for _ in range(chance.randint(6, 24)):
        yield chance.randbytes(PIECE_BYTES)


def digest_of(number: int) -> str:
    return hashlib.sha256(b"".join(body(number))).hexdigest()


def make_app(config: LargeConfig) -> App:
    retry_job.RetryJob.__init__.__kwdefaults__ = {"lease_ms": LEASE_MS}
    app = App(config.bootstrap, store=config.store, large=config.large)
    failed: Counter[str] = Counter()
    settings: dict[str, Any] = {
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
        "metadata.max.age.ms": 5_000,
        "group.instance.id": config.instance,
    }
    retry = Retry(in_place=1, delay="5ms", then=Backoff("20ms", "100ms", attempts=10))

    @app.handler(
        TOPIC, group=GROUP, name="take", order="key", retry=retry, start="earliest",
        settings=settings,
    )  # fmt: skip
    def take(message: Message, tx: Transaction) -> None:
        whole = hashlib.sha256()
        with message.stream() as stream:
            while piece := stream.read(PIECE_BYTES):
                whole.update(piece)
        number = int(message.id)
        if number % FLAKY_EVERY == 0 and failed[message.id] < FLAKY_FAILURES:
            failed[message.id] += 1
            raise ValueError("it fails at first")
        row = {"id": message.id, "digest": whole.hexdigest()}
        tx.execute("INSERT INTO handled (id, digest) VALUES (:id, :digest)", row)

    return app


def __getattr__(name: str) -> App:
    # Made when it is asked for, so that tests can import the words of this module.
    if name != "app":
        raise AttributeError(name)
    return make_app(LargeConfig.read(Path()))
