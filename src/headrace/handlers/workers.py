"""Workers: threads that take chunks from an engine, as many as there is use for."""

from __future__ import annotations

import logging
import threading
from time import monotonic, monotonic_ns, thread_time_ns

from headrace.handlers.engine import Engine
from headrace.handlers.lanes import Item
from headrace.handlers.pace import NS_PER_MS

# A thread beyond the least that found nothing to do for so long ends.
IDLE_SECONDS = 10.0
# To ask for a thread's processor time takes longer than most of what is done for a message.
CPU_EVERY = 16
# When no worker has ended a turn for so long, more are hired before anything is known.
STUCK_MS = 10
# What still runs then had its time when the partitions were taken away.
JOIN_SECONDS = 2.0

_log = logging.getLogger("headrace.handlers")


class Workers:
    """A pool between `least` and `most` threads; it grows while messages wait and work waits."""

    def __init__(self, engine: Engine, least: int, most: int) -> None:
        self._engine = engine
        self._least = least
        self._most = most
        self._wanted = threading.Condition(engine.lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._has_timer = False
        self._turned_ns = monotonic_ns()
        self._runs = 0

    def start(self) -> None:
        """Start the least number of threads."""
        with self._engine.lock:
            for _ in range(self._least):
                self._hire()

    def call(self) -> None:
        """Wake a worker if something is ready; hire some when all seem to be stuck."""
        with self._engine.lock:
            if not self._engine.lanes.ready:
                return
            self._call_one()
            if not self._idle and monotonic_ns() - self._turned_ns > STUCK_MS * NS_PER_MS:
                most = min(self._most - len(self._threads), len(self._threads))
                for _ in range(min(most, self._engine.lanes.ready)):
                    self._hire()

    def stop(self) -> None:
        """End the threads; one that is inside a handler ends after it."""
        self._engine.stop()
        with self._engine.lock:
            self._wanted.notify_all()
            threads = list(self._threads)
        deadline = monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))

    def __len__(self) -> int:
        return len(self._threads)

    @property
    def busy(self) -> int:
        """Threads at work."""
        return len(self._threads) - self._idle

    def _call_one(self) -> None:
        if self._idle:
            self._wanted.notify()
        elif len(self._threads) < self._least or (
            len(self._threads) < self._most and self._engine.pace.has_use_for_more(self.busy)
        ):
            self._hire()

    def _hire(self) -> None:
        name = f"{self._engine.spec.name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        engine = self._engine
        chunk: list[Item] = []
        done = due_ms = 0
        while True:
            with engine.lock:
                self._turned_ns = monotonic_ns()
                chunk = engine.turn(chunk, done, due_ms)
                while not chunk:
                    if engine.stopping or not self._wait():
                        self._threads.discard(threading.current_thread())
                        return
                    chunk = engine.turn([], 0, 0)
                if engine.lanes.ready:
                    self._call_one()
            done, due_ms = self.run(chunk)

    def run(self, chunk: list[Item]) -> tuple[int, int]:
        """Run a chunk in this thread and learn from its time."""
        pace = self._engine.pace
        self._runs += 1
        if self._runs % CPU_EVERY != 1:
            started_ns = monotonic_ns()
            done, due_ms = self._engine.work(chunk)
            pace.note(done, monotonic_ns() - started_ns)
            return done, due_ms
        started_ns, cpu_ns = monotonic_ns(), thread_time_ns()
        done, due_ms = self._engine.work(chunk)
        pace.note(done, monotonic_ns() - started_ns, thread_time_ns() - cpu_ns)
        return done, due_ms

    def _wait(self) -> bool:
        """Wait for work; False when this thread is not needed any more."""
        engine = self._engine
        ready = engine.lanes.ready
        # One of those that wait looks after the messages that wait for their next try.
        due_ms = None if self._has_timer else engine.wake_locked()
        if engine.lanes.ready > ready:
            return True
        is_timer = due_ms is not None
        self._has_timer = self._has_timer or is_timer
        self._idle += 1
        called = self._wanted.wait(IDLE_SECONDS if due_ms is None else due_ms / 1000)
        self._idle -= 1
        if is_timer:
            self._has_timer = False
            engine.wake_locked()
        return called or is_timer or len(self._threads) <= self._least
