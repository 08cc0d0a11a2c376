"""A loop that goes on: one client's life after the other, until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from confluent_kafka import KafkaException

PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 10.0
# A life that was this long was a good one: the next failure is a new trouble.
GOOD_SECONDS = 60.0

_log = logging.getLogger("headrace.ledger")


class Lives:
    """Runs `live` in a thread until `stop`; what fails starts again after a pause that grows."""

    def __init__(self, name: str, live: Callable[[threading.Event], None]) -> None:
        self.stopping = threading.Event()
        self.failures = 0
        self._live = live
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and wait for that."""
        self.stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = PAUSE_SECONDS
        while not self.stopping.is_set():
            began = monotonic()
            try:
                self._live(self.stopping)
            except KafkaException as problem:
                # Brokers come back, and a partition that another has taken is not ours to keep.
                _log.warning("%s starts again: %s", self._thread.name, problem.args[0])
            except Exception:
                _log.exception("%s starts again", self._thread.name)
            else:
                continue
            self.failures += 1
            pause_s = PAUSE_SECONDS if monotonic() - began > GOOD_SECONDS else pause_s
            self.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)
