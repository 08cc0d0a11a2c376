"""A node under fire: `headrace dispatch run tests.faults.dispatch_node:dispatcher` in its folder.

It submits its share of items, runs what comes, and writes down what it does, line by line, before
and after; what it wrote is in the system's hands when it is killed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.dispatch import Delivery, Dispatcher, Limits

CONFIG = "node.json"
JOURNAL = "journal.jsonl"
BATCH_ITEMS = 20
# Less than there is to submit: submitters wait for capacity.
SPOOL_ITEMS_MAX = 200
LIMITS = Limits(
    lease_ms=2_000,
    offer_ms=500,
    heal_interval_ms=250,
    heal_misses=2,
    ask_interval_ms=300,
    tick_ms=50,
)


@dataclass(frozen=True)
class NodeConfig:
    """What a node is told."""

    name: str
    bootstrap: str
    tokens: str
    topic: str
    partitions: int
    # Items of this node's own, and how long each takes.
    items: int
    work_ms: int
    # Where its items are kept: a file of its own, or a database for all.
    spool: str
    settings: dict[str, Any]

    def write(self, folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps(self.__dict__))


def read_config() -> NodeConfig:
    """The configuration in the working directory."""
    return NodeConfig(**json.loads(Path(CONFIG).read_text()))


class Journal:
    """Lines that outlive the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **facts: Any) -> None:
        line = {"kind": kind, "at_ns": time.monotonic_ns(), "life": os.getpid(), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def make(config: NodeConfig, journal: Journal) -> Dispatcher:
    """The dispatcher, which begins to submit once it runs."""
    dispatcher = Dispatcher(
        config.bootstrap,
        topic=config.topic,
        tokens=config.tokens,
        spool=config.spool,
        partitions=config.partitions,
        spool_items_max=SPOOL_ITEMS_MAX,
        drain="5s",
        adopt_after="3s",
        limits=LIMITS,
        settings=config.settings,
    )
    pause = threading.Event()

    @dispatcher.worker
    def work(_job: str, delivery: Delivery) -> None:
        facts = {"partition": delivery.partition, "fence": delivery.fence, "id": delivery.id}
        journal.note("start", **facts)
        pause.wait(config.work_ms / 1000)
        journal.note("end", **facts)

    def submit() -> None:
        while dispatcher.node is None:
            pause.wait(0.05)
        for first in range(submitted(Path(JOURNAL)), config.items, BATCH_ITEMS):
            numbers = range(first, min(first + BATCH_ITEMS, config.items))
            ids = [f"{config.name}-{number}" for number in numbers]
            dispatcher.submit_all_sync(ids, ids=ids)
            journal.note("submitted", ids=ids)

    threading.Thread(target=submit, daemon=True).start()
    return dispatcher


def submitted(path: Path) -> int:
    """How many items an earlier life has submitted."""
    notes = [json.loads(line) for line in path.read_text().splitlines()]
    return sum(len(note["ids"]) for note in notes if note["kind"] == "submitted")


if Path(CONFIG).exists():
    dispatcher = make(read_config(), Journal(Path(JOURNAL)))
