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
# Longer than a step of a transaction takes with all its tries, while brokers are away.
STUCK_SECONDS = 90.0
LOOK_SECONDS = 1.0

_log = logging.getLogger("headrace.ledger")


class Stopping(threading.Event):
    """Whether a life has to end; knows when it last looked."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = monotonic()

    def is_set(self) -> bool:
        self.looked_at = monotonic()
        return super().is_set()


class Lives:
    """Runs `live` until `stop`; what fails starts again after a pause that grows.

    `live` looks whether it has to end after each of its steps. One that does not come back from a
    step is left behind, and another begins: librdkafka waits without end for a coordinator that it
    takes to be away (it keeps no time for such requests). What is left behind must harm nobody
    when it does come back: a life shares nothing with the next, and is fenced by it.
    """

    def __init__(
        self,
        name: str,
        live: Callable[[threading.Event], None],
        *,
        stuck_s: float = STUCK_SECONDS,
        look_s: float = LOOK_SECONDS,
    ) -> None:
        self.stopping = threading.Event()
        self._name = name
        self._live = live
        self._stuck_s = stuck_s
        self._look_s = look_s
        self._life_stopping = Stopping()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask it to end after the step at hand."""
        self.stopping.set()
        self._life_stopping.set()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and wait for that."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = PAUSE_SECONDS
        while not self.stopping.is_set():
            began = monotonic()
            if self._run_one():
                continue
            pause_s = PAUSE_SECONDS if monotonic() - began > GOOD_SECONDS else pause_s
            self.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    def _run_one(self) -> bool:
        """Run one life; whether it ended well."""
        stopping = self._life_stopping = Stopping()
        problems: list[BaseException] = []

        def live() -> None:
            try:
                self._live(stopping)
            except BaseException as problem:
                problems.append(problem)

        life = threading.Thread(target=live, name=f"{self._name}-life", daemon=True)
        life.start()
        while life.is_alive():
            if self.stopping.is_set():
                stopping.set()
                life.join()
            elif monotonic() - stopping.looked_at > self._stuck_s:
                stopping.set()
                _log.error("%s is stuck in its client: a new one begins", self._name)
                return False
            else:
                life.join(self._look_s)
        for problem in problems:
            if isinstance(problem, KafkaException):
                # Brokers come back, and a partition that another has taken is not ours to keep.
                _log.warning("%s starts again: %s", self._name, problem.args[0])
            else:
                _log.error("%s starts again", self._name, exc_info=problem)
        return not problems
