"""Reading TOPIC.done: all along for the outcomes of own items, or a part of it to look one up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from headrace.client.consumer.consumer import Consumer
from headrace.dispatch.cluster import Cluster
from headrace.dispatch.outcomes import Outcome, parse

POLL_RECORDS = 1000
POLL_SECONDS = 0.2
RESTART_SECONDS = 0.5
# How often it is looked whether the topic has grown.
LOOK_SECONDS = 10.0
# A scan goes on as long as it comes further; without any record it gives up.
SCAN_SECONDS_MAX = 60.0
# A first job waits no longer for the brokers to say where the topic ends.
PLACE_SECONDS = 2.0

SETTINGS = {
    "auto.offset.reset": "earliest",
    "fetch.error.backoff.ms": 50,
    # A full queue is filled again at once, where the library would wait for a second.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16_384,
}

# The outcomes of own items, and how far the topic has been read.
OnOutcomes = Callable[[Sequence[Outcome], Mapping[int, int]], None]

_log = logging.getLogger("headrace.dispatch")


class DoneReader:
    """Reads the whole topic in a thread of its own and passes on what is about `mine`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        cluster: Cluster,
        *,
        mine: Container[str],
        on_outcomes: OnOutcomes,
    ) -> None:
        self.position: dict[int, int] = {}
        self._settings = {**SETTINGS, **settings}
        self._topic = topic
        self._cluster = cluster
        self._mine = mine
        self._on_outcomes = on_outcomes
        self._stopping = threading.Event()
        self._rewound = threading.Event()
        self._lock = threading.Lock()
        self._is_placed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-done", daemon=True)

    def place(self, known: Mapping[int, int]) -> None:
        """Where to begin: where it was left, or else at the end; nothing may be sent before."""
        count = self._cluster.partitions(self._topic)
        unknown = [number for number in range(count) if number not in known]
        # A partition that was made since the last time is new as a whole.
        ends = dict.fromkeys(unknown, 0) if known else self._cluster.ends(self._topic, unknown)
        self.position = {**ends, **known}

    def start(self, *, at_end: bool = False) -> bool:
        """Begin to read; False if that was before. Nothing that is sent afterwards is missed.

        With `at_end` what was written before this moment is left out, if the brokers say in time
        where that is.
        """
        if self._thread.ident is not None:
            return False
        if not at_end:
            self._is_placed.set()
        self._thread.start()
        self._is_placed.wait(PLACE_SECONDS)
        with self._lock:
            self._is_placed.set()
        return True

    def rewind(self, places: Mapping[int, int]) -> None:
        """Read again from further back, for items that were taken over."""
        with self._lock:
            for partition, offset in places.items():
                self.position[partition] = min(offset, self.position.get(partition, offset))
            self._rewound.set()

    def stop(self) -> None:
        """End; returns when nothing is passed on any more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _skip_to_end(self) -> None:
        try:
            ends = self._cluster.ends(self._topic, list(self.position))
        except (KafkaException, OSError) as error:
            _log.info("%s is read from the start of this node: %s", self._topic, error)
            ends = {}
        with self._lock:
            # Later, something may have been sent already.
            if not self._is_placed.is_set() and not self._rewound.is_set():
                self.position.update(ends)
            self._is_placed.set()

    def _run(self) -> None:
        if not self._is_placed.is_set():
            self._skip_to_end()
        while not self._stopping.is_set():
            try:
                self._read()
            except (KafkaException, OSError) as error:
                _log.warning("reading %s begins anew: %s", self._topic, error)
                self._stopping.wait(RESTART_SECONDS)
            except Exception:
                _log.exception("reading %s begins anew", self._topic)
                self._stopping.wait(RESTART_SECONDS)

    def _read(self) -> None:
        self._rewound.clear()
        with Consumer(self._settings, start="earliest") as consumer:
            consumer.assign([(self._topic, *place) for place in self.position.items()])
            look_at_s = time.monotonic() + LOOK_SECONDS
            while not self._stopping.is_set() and not self._rewound.is_set():
                records = consumer.poll_batch(POLL_RECORDS, POLL_SECONDS)
                if records:
                    self._pass_on(records)
                if time.monotonic() >= look_at_s:
                    look_at_s = time.monotonic() + LOOK_SECONDS
                    new = range(len(self.position), self._cluster.partitions(self._topic))
                    if new:
                        self.rewind(dict.fromkeys(new, 0))

    def _pass_on(self, records: Sequence[Any]) -> None:
        position = dict(self.position)
        for record in records:
            position[record.partition()] = record.offset() + 1
        self._on_outcomes(_outcomes(records, self._mine), position)
        with self._lock:
            if not self._rewound.is_set():
                self.position = position


def scan(
    settings: Mapping[str, Any],
    topic: str,
    cluster: Cluster,
    since_ms: int,
    ids: Container[str],
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """The outcomes of these items that were written from a time on until now.

    TimeoutError if the brokers do not let it come further, or it is told to stop.
    """
    numbers = range(cluster.partitions(topic))
    starts = cluster.since(topic, numbers, since_ms)
    ends = cluster.ends(topic, numbers)
    left = {p: end for p, end in ends.items() if 0 <= starts[p] < end}
    found: list[Outcome] = []
    if not left:
        return found
    with Consumer({**SETTINGS, **settings}, start="earliest") as consumer:
        consumer.assign([(topic, p, starts[p]) for p in left])
        deadline_s = time.monotonic() + SCAN_SECONDS_MAX
        while left:
            if time.monotonic() > deadline_s or is_stopping():
                raise TimeoutError(f"{topic} was not read to its end: {left}")
            records = consumer.poll_batch(POLL_RECORDS, POLL_SECONDS)
            if records:
                deadline_s = time.monotonic() + SCAN_SECONDS_MAX
            for record in records:
                if record.offset() + 1 >= left.get(record.partition(), 0):
                    left.pop(record.partition(), None)
                found += _outcomes([record], ids)
    return found


def _outcomes(records: Sequence[Any], ids: Container[str]) -> list[Outcome]:
    """What records say about these items; the others cost little."""
    found: list[Outcome] = []
    for record in records:
        key = record.key()
        if key is not None and key.decode("utf-8", "replace") in ids:
            outcome = parse(key, record.value(), record.headers())
            if outcome is not None:
                found.append(outcome)
    return found
