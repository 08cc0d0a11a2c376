"""The thread that writes a spool: changes of many threads together, with one sync for all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.room import closed
from headrace.dispatch.spool.changes import Change, Put
from headrace.dispatch.spool.port import BEAT_SECONDS, Beat, Spool

# What nobody waits for is written this late at most.
NOTE_SECONDS = 0.02
# A spool that is broken (a full disk, a database that is away) is tried again this often.
AGAIN_SECONDS = 0.5

# Called once, with None when it is kept, or with why it is not.
Kept = Callable[[Exception | None], None]

_log = logging.getLogger("headrace.dispatch")


class SpoolWriter:
    """Takes changes from any thread; the spool itself is used by this thread alone."""

    def __init__(
        self, spool: Spool, *, on_beat: Callable[[Beat], None], now_ms: Callable[[], int]
    ) -> None:
        self._spool = spool
        self._on_beat = on_beat
        self._now_ms = now_ms
        self._wanted = threading.Condition()
        self._puts: list[tuple[Sequence[Put], Kept]] = []
        self._notes: list[Change] = []
        self._is_stopping = False
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="headrace-spool", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, items: Sequence[Put], kept: Kept) -> None:
        """Keep items, all or none; `kept` is called from the writer's thread."""
        with self._wanted:
            if not self._is_stopping:
                self._puts.append((items, kept))
                self._wanted.notify()
                return
        kept(closed())

    def note(self, changes: Sequence[Change]) -> None:
        """Keep changes that nobody waits for."""
        with self._wanted:
            if not self._notes and not self._puts:
                self._wanted.notify()
            self._notes += changes

    def stop(self) -> None:
        """Write what there is, and close the spool."""
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
                    self._wanted.wait(AGAIN_SECONDS if self._is_broken else NOTE_SECONDS)
                puts, notes = self._puts, self._notes
                self._puts, self._notes = [], []
                is_last = self._is_stopping
            self._write(puts, notes)
            if is_last:
                return
            self._beat()

    def _write(self, puts: list[tuple[Sequence[Put], Kept]], notes: list[Change]) -> None:
        if not puts and not notes:
            return
        # Notes are about items that were put before, and puts about new ones.
        changes = notes + [put for items, _ in puts for put in items]
        error: SpoolBroken | None = None
        try:
            self._spool.write(changes)
            self._is_broken = False
        except Exception as problem:
            # Whatever it was: the thread lives on, or every later submitter would wait for ever.
            error = self._broken(problem)
            # Written twice they say the same as once.
            with self._wanted:
                self._notes = notes + self._notes
        for _, kept in puts:
            try:
                kept(error)
            except Exception:
                _log.exception("a submitter could not be told that its jobs are kept")

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
