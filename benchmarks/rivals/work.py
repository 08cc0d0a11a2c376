"""What all rivals share: the load they are given, the messages, the meter and the answer."""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CLOCK_EVERY = 256  # messages between two looks at the clock
_SAMPLES = 50  # of memory over a load
# Consumers fetch ahead for this long at most; it is the same for everyone.
FETCH_WAIT_MS = 50


class Order(msgspec.Struct):
    """The message: JSON of about 150 bytes."""

    id: int
    customer: str
    amount: int
    work_us: int
    note: str


decode_order = msgspec.json.Decoder(Order).decode


@dataclass(frozen=True)
class Load:
    """What a rival is to do; it goes to the rival's process as JSON."""

    bootstrap: str
    topic: str
    group: str
    messages: int
    seconds_max: float
    mode: str = ""  # a rival's own choice of words, such as "consume"
    work: str = "count"  # "count", "sleep", "insert" or "statements"
    statements: int = 0
    database: str = ""


def given() -> Load:
    """The load that this process was given."""
    return Load(**json.loads(sys.argv[1]))


@dataclass
class Meter:
    """Counts handled messages from any thread; the time runs from the first to the last of them.

    A load also ends when its seconds are over, so that a slow rival takes no longer than others.
    """

    load: Load
    finished: threading.Event = field(default_factory=threading.Event)
    begun_s: float = 0.0
    ended_s: float = 0.0
    handled: int = 0
    cpu_begun_s: float = 0.0
    cpu_ended_s: float = 0.0
    resident: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        # One call in C, and so one message to one number, whichever thread asks.
        self._next = itertools.count(1).__next__
        self._last = self.load.messages
        self._sample_every = max(1, self._last // _SAMPLES)

    def count(self) -> bool:
        """Note a handled message; True when the load is over."""
        number = self._next()
        if number == 1:
            self.begun_s = time.perf_counter()
            self.cpu_begun_s = _cpu_s()
        if number % self._sample_every == 0:
            self.resident.append(_resident_bytes())
        if number == self._last or (
            number % _CLOCK_EVERY == 0
            and time.perf_counter() - self.begun_s > self.load.seconds_max
        ):
            self._end(number)
        return self.finished.is_set()

    def _end(self, number: int) -> None:
        if not self.finished.is_set():
            self.ended_s = time.perf_counter()
            self.cpu_ended_s = _cpu_s()
            self.handled = number
            self.finished.set()

    def wait(self) -> None:
        """Wait until the load is over; RuntimeError when nothing more comes."""
        if not self.finished.wait(60.0 + self.load.seconds_max):
            raise RuntimeError("the messages stopped coming")

    def tell(self, **more: Any) -> None:
        """Print the answer: one line of JSON."""
        seconds = self.ended_s - self.begun_s
        answer = {
            "messages": self.handled,
            "seconds": seconds,
            "messages_per_second": self.handled / seconds,
            "cpu_us_per_message": (self.cpu_ended_s - self.cpu_begun_s) * 1e6 / self.handled,
            "resident_bytes": self.resident,
            **more,
        }
        print(json.dumps(answer), flush=True)


def sleep_s(order: Order) -> float:
    """The time that an order's work takes."""
    return order.work_us / 1e6


def consumer_settings(load: Load) -> dict[str, Any]:
    """librdkafka's settings for a plain consumer: its defaults, from the topic's beginning."""
    return {
        "bootstrap.servers": load.bootstrap,
        "group.id": load.group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "log_level": 0,
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
