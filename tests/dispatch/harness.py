"""A Kafka, a token store and nodes on them, for tests of whole dispatchers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_SECONDS

from headrace.dispatch import Dispatcher, Limits
from headrace.dispatch.tokens import open_tokens
from headrace.dispatch.tokens.store import StoreStatus

# Everything that heals does so within a few seconds.
QUICK = Limits(
    lease_ms=2_000,
    offer_ms=500,
    heal_interval_ms=200,
    heal_misses=2,
    ask_interval_ms=300,
    tick_ms=50,
)
# Changes of the group and of the topic are noticed soon.
SETTINGS = {
    "log_level": 0,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
    "topic.metadata.refresh.interval.ms": 500,
}

_numbers = itertools.count(1)


@dataclass
class Harness:
    """What the nodes of one test share."""

    bootstrap: str
    tokens: str
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    topic: str = field(default_factory=lambda: f"jobs-{next(_numbers)}")

    def dispatcher(self, worker: Callable[..., Any] | None = None, **options: Any) -> Dispatcher:
        """A dispatcher that is not started; stopped at the end of the test."""
        options.setdefault("spool", self.folder / f"{next(_numbers)}.spool")
        options.setdefault("topic", self.topic)
        options.setdefault("tokens", self.tokens)
        options.setdefault("limits", QUICK)
        options.setdefault("drain", "10s")
        options.setdefault("partitions", 4)
        settings = {**SETTINGS, **options.get("settings", {})}
        options["settings"] = {key: value for key, value in settings.items() if value is not None}
        made = Dispatcher(self.bootstrap, **options)
        if worker is not None:
            made.worker(worker)
        self.stack.callback(made.stop)
        return made

    def node(self, worker: Callable[..., Any] | None = None, **options: Any) -> Dispatcher:
        """A started dispatcher, in its group if it has a worker."""
        made = self.dispatcher(worker, **options).start()
        if worker is not None:
            assert made.wait_ready(WAIT_SECONDS)
        return made

    def status(self, topic: str | None = None) -> StoreStatus:
        """What the token store says."""
        store = open_tokens(self.tokens, topic or self.topic, QUICK)
        try:
            return store.status()
        finally:
            store.close()

    def idle(self) -> int:
        """How many tokens are idle."""
        return self.status().counts()["idle"]
