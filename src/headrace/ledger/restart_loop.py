"""A loop that runs a function in a thread and starts it again when it fails or gets stuck."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from confluent_kafka import KafkaException

PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 10.0
# After a run of this length the pause starts small again.
GOOD_SECONDS = 60.0
# Longer than a step of a transaction takes with all its retries while brokers are away.
STUCK_SECONDS = 90.0
CHECK_SECONDS = 1.0

_log = logging.getLogger("headrace.ledger")


class StopSignal(threading.Event):
    """Tells a run to end; remembers when the run last checked it."""

    def __init__(self) -> None:
        super().__init__()
        self.checked_at = monotonic()

    def is_set(self) -> bool:
        self.checked_at = monotonic()
        return super().is_set()


class RestartLoop:
    """Calls `run` until `stop`; after a failure it pauses, longer each time, and calls it again.

    `run` checks its stop signal after each step. A run that does not return from a step is
    abandoned and another one starts: librdkafka waits forever for a coordinator that it believes
    to be away. An abandoned run must do no harm if it returns after all, so a run shares nothing
    with the next one and is fenced by it.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[threading.Event], None],
        *,
        stuck_s: float = STUCK_SECONDS,
        check_s: float = CHECK_SECONDS,
    ) -> None:
        self.stopping = threading.Event()
        self._name = name
        self._run = run
        self._stuck_s = stuck_s
        self._check_s = check_s
        self._stop_run = StopSignal()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Ask the loop to end after the current step."""
        self.stopping.set()
        self._stop_run.set()

    def stop(self, timeout_s: float) -> None:
        """Ask the loop to end, and wait until it has."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _loop(self) -> None:
        pause_s = PAUSE_SECONDS
        while not self.stopping.is_set():
            began = monotonic()
            if self._run_once():
                continue
            pause_s = PAUSE_SECONDS if monotonic() - began > GOOD_SECONDS else pause_s
            self.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    def _run_once(self) -> bool:
        """Returns whether the run ended without a failure."""
        stop = self._stop_run = StopSignal()
        problems: list[BaseException] = []

        def run() -> None:
            try:
                self._run(stop)
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, name=f"{self._name}-run", daemon=True)
        thread.start()
        while thread.is_alive():
            if self.stopping.is_set():
                stop.set()
                thread.join()
            elif monotonic() - stop.checked_at > self._stuck_s:
                stop.set()
                _log.error("%s is stuck in its client; starting another one", self._name)
                return False
            else:
                thread.join(self._check_s)
        for problem in problems:
            if isinstance(problem, KafkaException):
                # Expected: brokers restart, and partitions move to other instances.
                _log.warning("%s restarts: %s", self._name, problem.args[0])
            else:
                _log.error("%s restarts", self._name, exc_info=problem)
        return not problems
