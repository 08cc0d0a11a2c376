"""The thread that writes a spool, with one sync for many submitters, and the limit on its size."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from headrace.dispatch.errors import DispatchError, SpoolBroken, SpoolFull
from headrace.dispatch.spool.port import BEAT_SECONDS, Beat, JobPut, Spool, SpoolChange

# Changes that no caller waits for are written this late at most.
NOTE_SECONDS = 0.02
# A broken spool (a full disk, a database that is down) is tried again this often.
RETRY_SECONDS = 0.5

WHEN_FULL = ("wait", "refuse")

# Called once: with None on success, or with the error.
Callback = Callable[[Exception | None], None]

_log = logging.getLogger("headrace.dispatch")


class SpoolCapacity:
    """The limit on a node's unfinished jobs and their bytes; submitters wait in a queue for room.

    Jobs that were recovered or taken over are counted, and may exceed the limit.
    """

    def __init__(self, jobs_max: int, bytes_max: int, full: str) -> None:
        if full not in WHEN_FULL:
            raise ValueError(f"full={full!r} is not valid; use one of {', '.join(WHEN_FULL)}")
        self.jobs = self.bytes = 0
        self.jobs_max = jobs_max
        self.bytes_max = bytes_max
        self._refuses = full == "refuse"
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, int, Callback]] = deque()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many submitters wait for room."""
        return len(self._waiting)

    def reserve(self, jobs: int, size: int, reserved: Callback) -> None:
        """Call `reserved` as soon as there is room, at once if possible; SpoolFull if refused."""
        if jobs > self.jobs_max or size > self.bytes_max:
            raise SpoolFull(
                f"{jobs} jobs of {size} bytes do not fit into a spool of {self.jobs_max} jobs "
                f"and {self.bytes_max} bytes",
                "submit fewer at once, or raise spool_items_max or spool_bytes_max",
            )
        with self._lock:
            if self._is_closed:
                raise closed()
            has_room = not self._waiting and self._fits(jobs, size)
            if has_room:
                self._add(jobs, size)
            elif self._refuses:
                raise SpoolFull(
                    f"the spool is full: it holds {self.jobs} jobs of {self.bytes} bytes",
                    'submit later, start more workers, or wait for room with full="wait"',
                )
            else:
                self._waiting.append((jobs, size, reserved))
        if has_room:
            reserved(None)

    def occupy(self, jobs: int, size: int) -> None:
        """Count jobs that were recovered or taken over."""
        with self._lock:
            self._add(jobs, size)

    def release(self, jobs: int, size: int) -> None:
        """Free room, and admit the submitters that fit now."""
        admitted: list[Callback] = []
        with self._lock:
            self._add(-jobs, -size)
            while self._waiting and self._fits(*self._waiting[0][:2]):
                wanted, wanted_bytes, reserved = self._waiting.popleft()
                self._add(wanted, wanted_bytes)
                admitted.append(reserved)
        for reserved in admitted:
            reserved(None)

    def close(self) -> None:
        """Refuse all submitters, also those that wait."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, deque()
        for *_, reserved in waiting:
            reserved(closed())

    def open(self) -> None:
        """Start again, empty."""
        with self._lock:
            self._is_closed = False
            self.jobs = self.bytes = 0

    def _fits(self, jobs: int, size: int) -> bool:
        return self.jobs + jobs <= self.jobs_max and self.bytes + size <= self.bytes_max

    def _add(self, jobs: int, size: int) -> None:
        self.jobs += jobs
        self.bytes += size


class SpoolWriter:
    """Takes changes from any thread; only its own thread uses the spool."""

    def __init__(
        self, spool: Spool, *, on_beat: Callable[[Beat], None], now_ms: Callable[[], int]
    ) -> None:
        self._spool = spool
        self._on_beat = on_beat
        self._now_ms = now_ms
        self._wanted = threading.Condition()
        self._puts: list[tuple[Sequence[JobPut], Callback]] = []
        self._notes: list[SpoolChange] = []
        self._is_stopping = False
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="headrace-spool", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def put(self, jobs: Sequence[JobPut], stored: Callback) -> None:
        """Store jobs, all or none; `stored` is called from the writer's thread."""
        with self._wanted:
            if not self._is_stopping:
                self._puts.append((jobs, stored))
                self._wanted.notify()
                return
        stored(closed())

    def note(self, changes: Sequence[SpoolChange]) -> None:
        """Store changes that no caller waits for."""
        with self._wanted:
            if not self._notes and not self._puts:
                self._wanted.notify()
            self._notes += changes

    def stop(self) -> None:
        """Write what is left, and close the spool."""
        with self._wanted:
            self._is_stopping = True
            self._wanted.notify()
        self._thread.join()
        try:
            self._spool.close()
        except (SpoolBroken, OSError) as error:
            _log.error("the spool was not closed: %s", error)

    def _run(self) -> None:
        while True:
            with self._wanted:
                if not self._puts and not self._notes and not self._is_stopping:
                    self._wanted.wait(BEAT_SECONDS)
                if not self._puts and self._notes and not self._is_stopping:
                    self._wanted.wait(RETRY_SECONDS if self._is_broken else NOTE_SECONDS)
                puts, notes = self._puts, self._notes
                self._puts, self._notes = [], []
                is_last = self._is_stopping
            self._write(puts, notes)
            if is_last:
                return
            self._beat()

    def _write(
        self, puts: list[tuple[Sequence[JobPut], Callback]], notes: list[SpoolChange]
    ) -> None:
        if not puts and not notes:
            return
        # Notes are about jobs that were put before, so they go first.
        changes = notes + [put for jobs, _ in puts for put in jobs]
        error: SpoolBroken | None = None
        try:
            self._spool.write(changes)
            self._is_broken = False
        except Exception as problem:
            # The thread survives every error, or all later submitters would wait forever.
            error = self._broken(problem)
            # Writing them twice has the same effect as once.
            with self._wanted:
                self._notes = notes + self._notes
        for _, stored in puts:
            try:
                stored(error)
            except Exception:
                _log.exception("the callback of a submitter failed")

    def _beat(self) -> None:
        try:
            beat = self._spool.beat(self._now_ms())
            if beat.adopted is not None or beat.kept is not None:
                self._on_beat(beat)
        except Exception as problem:
            self._broken(problem)

    def _broken(self, problem: Exception) -> SpoolBroken:
        is_known = isinstance(problem, SpoolBroken)
        if not self._is_broken or not is_known:
            _log.error("%s", problem, exc_info=None if is_known else problem)
        self._is_broken = True
        if isinstance(problem, SpoolBroken):
            return problem
        return SpoolBroken(f"the spool cannot be used: {problem}", "see the log for the error")


def closed() -> DispatchError:
    """The error of a submitter once the dispatcher has stopped."""
    return DispatchError("the dispatcher has stopped; the job was not stored", "dispatcher.start()")
