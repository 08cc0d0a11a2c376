"""The engine of one handler: lanes under a lock, between the runner that polls and the workers."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from headrace.client.message import Message
from headrace.errors import Away
from headrace.handlers.batches import Chunks, are_open, positions
from headrace.handlers.execution import Execution, IsOpen, Positions, Revoked
from headrace.handlers.lanes import Item, Lanes, Record, Track
from headrace.handlers.pace import NS_PER_MS, Pace
from headrace.handlers.policies import Again
from headrace.store.fingerprints import describe

if TYPE_CHECKING:
    from headrace.handlers.batches import Run
    from headrace.handlers.context import AppContext
    from headrace.handlers.failures import Failures

# A record costs memory beside its payload: the client's object, the lane's entry.
RECORD_OVERHEAD_BYTES = 500
CHUNK_MESSAGES_MAX = 500
CHUNK_MS = 2.0
# After this a worker gives back what it has not begun, for others to take.
CHUNK_MS_MAX = 20
# One transaction for so many: more would save little and hold locks for longer.
GROUP_MESSAGES_MAX = 200
GROUP_MS = 50.0
# While the store or the brokers are away, everything waits so long between tries.
AWAY_DELAY_MS = 500

_log = logging.getLogger("headrace.handlers")


class Engine:
    """Lanes, progress and outcomes of one handler; the lock is held for microseconds only."""

    def __init__(
        self, execution: Execution, failures: Failures, context: AppContext, run: Run | None = None
    ) -> None:
        spec = execution.spec
        self.spec = spec
        self.execution = execution
        self.failures = failures
        self.lanes = Lanes(spec.order, RECORD_OVERHEAD_BYTES)
        self.lock = threading.Lock()
        self.settled = threading.Condition(self.lock)
        self.stopping = False
        self._clock = context.clock
        self._alarms = context.alarms
        self._run = run or self._run_stored
        self._keeps_positions = spec.once in ("offsets", "transaction")
        self.run_chunk = Chunks(execution, self.message, self._run, is_away).run
        in_groups = spec.wants_tx or spec.once == "transaction"
        self.pace = Pace(
            GROUP_MS if in_groups else CHUNK_MS,
            GROUP_MESSAGES_MAX if in_groups else CHUNK_MESSAGES_MAX,
        )
        self._attempts: dict[tuple[Track, int], int] = {}
        self._ready_since_ns = 0
        self._held_until_ms = 0
        self._is_waiting = False
        self._watchers = 0

    # What the runner does

    def add(self, records_by_track: Mapping[Track, Sequence[Record]]) -> None:
        """Queue what was polled."""
        with self.lock:
            was_ready = self.lanes.ready
            for track, records in records_by_track.items():
                self.lanes.add(track, records)
            if not was_ready:
                self._ready_since_ns = monotonic_ns()

    def wake(self) -> int | None:
        """Let go what waited for its next try; milliseconds until the next is due, if any."""
        with self.lock:
            return self.wake_locked()

    def wake_locked(self) -> int | None:
        """The same, for a caller that holds the lock."""
        now_ms = self._clock.monotonic_ms()
        due_ms = self.lanes.wake(now_ms)
        if self.lanes.ready and self._held_until_ms > now_ms:
            return self._held_until_ms - now_ms
        return None if due_ms is None else max(1, due_ms - now_ms)

    def linger_left_ms(self) -> float | None:
        """Milliseconds until an unfilled batch goes out; None when there is none."""
        if not self.spec.batch or not self.lanes.ready:
            return None
        return self.spec.linger_ms - (monotonic_ns() - self._ready_since_ns) / NS_PER_MS

    def close(self, tracks: Iterable[Track], drain_ms: int) -> bool:
        """Drop what waits, let what runs end within a bound; False when something still runs."""
        closing = list(tracks)
        with self.lock:
            for track in closing:
                self.lanes.close(track)
            self._watchers += 1
            try:
                idle = self.settled.wait_for(
                    lambda: not any(track.busy for track in closing), drain_ms / 1000
                )
            finally:
                self._watchers -= 1
            gone = set(closing)
            for key in [key for key in self._attempts if key[0] in gone]:
                self._attempts.pop(key, None)
        return idle

    def wait_settled(self, timeout_ms: float) -> None:
        """Wait until some worker has finished something."""
        with self.lock:
            self._watchers += 1
            self.settled.wait(timeout_ms / 1000)
            self._watchers -= 1

    def stop(self) -> None:
        """No worker gets anything from now on."""
        with self.lock:
            self.stopping = True

    # What workers do

    def message(self, item: Item) -> Message:
        """The message of an item, with its id and the number of this attempt."""
        attempts = self._attempts
        attempt = attempts.get((item[0].track, item[1]), 0) + 1 if attempts else 1
        return self.execution.message(item, attempt)

    def turn(self, chunk: list[Item], done: int, due_ms: int) -> list[Item]:
        """End a worker's turn and begin its next; empty when nothing may run. Holds the lock."""
        if chunk:
            self._settle(chunk, done, due_ms)
        if self.stopping or not self.lanes.ready or self._is_held():
            return []
        limit = self.spec.batch
        if limit:
            left_ms = self.linger_left_ms()
            if self.lanes.ready < limit and left_ms is not None and left_ms > 0:
                return []
            self._ready_since_ns = monotonic_ns()
        return self.lanes.take(limit or self.pace.chunk)

    def settle(self, chunk: list[Item], done: int, due_ms: int) -> None:
        """End a turn without beginning another."""
        with self.lock:
            self._settle(chunk, done, due_ms)

    def work(self, chunk: list[Item]) -> tuple[int, int]:
        """Run a chunk: how many are done, and when the one after them is due again (0: at once)."""
        deadline_ns = monotonic_ns() + CHUNK_MS_MAX * NS_PER_MS
        done = 0
        # What is left of a partition that was taken away is dropped when it is given back.
        while done < len(chunk) and chunk[done][0].track.open:
            part = chunk
            if self.may_be_parked:
                done, due_ms = self.put_away_parked(chunk, done)
                if due_ms or done == len(chunk):
                    return done, due_ms
                part = chunk[: self._free_until(chunk, done + 1)]
            done, error = self.run_chunk(part, done, deadline_ns)
            if isinstance(error, Revoked):
                break
            if error is not None:
                due_ms = self.failed(chunk[done], error)
                if due_ms:
                    return done, due_ms
                done += 1
            elif monotonic_ns() > deadline_ns:
                break
        return done, 0

    @property
    def may_be_parked(self) -> bool:
        """Whether any message now has to be asked whether its key waits in the retry table."""
        return self.failures.parking

    def put_away_parked(self, chunk: Sequence[Item], start: int) -> tuple[int, int]:
        """Park messages behind their keys, up to the first that may run (or is due later)."""
        end, due_ms = start, 0
        try:
            while end < len(chunk) and chunk[end][0].track.open:
                message = self._known(chunk[end])
                if not (self.failures.holds(message) and self.failures.park_behind(message)):
                    break
                end += 1
        except Exception as trouble:
            due_ms = self._hold(trouble)
        try:
            self._keep_positions(chunk[start:end])
        except Revoked:
            return start, -1
        except Exception as trouble:
            return start, self._hold(trouble)
        return end, due_ms

    def failed(self, item: Item, error: BaseException) -> int:
        """Decide on a failed message: 0 when it is put away, else when its next try is due."""
        if is_away(error):
            return self._hold(error)
        if not item[0].track.open and self.spec.delivery != "at_most_once":
            # The next owner of the partition meets the message and decides on it. Here it is not
            # done, because what is done is still committed; given back, it is dropped.
            return -1
        key = (item[0].track, item[1])
        attempt = self._attempts.get(key, 0) + 1
        step = self.failures.step(error, attempt)
        if isinstance(step, Again):
            with self.lock:
                self._attempts[key] = attempt
            # 0 says something else, and a virtual clock may begin there.
            return self._clock.monotonic_ms() + step.delay_ms or -1
        try:
            self._give_up(item, error, attempt)
            self._keep_positions([item])
        except Revoked:
            return -1
        except Exception as trouble:
            return self._hold(trouble)
        return 0

    def _give_up(self, item: Item, error: BaseException, attempt: int) -> None:
        try:
            self.failures.give_up(self._known(item), error, attempt)
        except Exception as trouble:
            if is_outage(trouble):
                raise
            # Nothing would be other the next time, and everything would wait for it.
            _log.exception("%s: a message could not be put away as it is", self.spec.name)
            self.failures.dead_letters.bury(
                Message.from_record(item[2]), describe(error, self.spec.name), attempt
            )

    def _keep_positions(self, items: Sequence[Item]) -> None:
        """Keep the place of messages that were put away, which no effect of theirs does."""
        if items and self._keeps_positions:
            self._run([], positions(items), lambda: are_open(items))

    def _run_stored(self, messages: Sequence[Message], at: Positions, is_open: IsOpen) -> None:
        if not is_open():
            raise Revoked
        self.execution.run_messages(messages, None, at)

    def _free_until(self, chunk: Sequence[Item], start: int) -> int:
        """Where the next message lies whose key waits; all before it may run together."""
        for index in range(start, len(chunk)):
            if self.failures.holds(self._known(chunk[index])):
                return index
        return len(chunk)

    def _settle(self, chunk: list[Item], done: int, due_ms: int) -> None:
        self.lanes.settle(chunk, done, due_ms)
        if self._attempts:
            for lane, sequence, _ in chunk[:done]:
                self._attempts.pop((lane.track, sequence), None)
        if self._is_waiting and done:
            self._is_waiting = False
            _log.info("%s goes on", self.spec.name)
        if self._watchers:
            self.settled.notify_all()

    def _known(self, item: Item) -> Message:
        try:
            return self.message(item)
        except Exception:
            # It has no id of the kind its handler asks for; the common one will do here.
            return Message.from_record(item[2])

    def _hold(self, error: BaseException) -> int:
        """Make everything wait until a time, because it is not the message that is at fault."""
        if not self._is_waiting:
            self._is_waiting = True
            self._alarms.ring(
                "handler-waits",
                f"{self.spec.name} waits and tries again: {error}",
                handler=self.spec.name,
            )
        self._held_until_ms = self._clock.monotonic_ms() + AWAY_DELAY_MS
        return self._held_until_ms

    def _is_held(self) -> bool:
        return bool(self._held_until_ms) and self._clock.monotonic_ms() < self._held_until_ms


def is_outage(error: BaseException) -> bool:
    """Whether putting a message away may succeed later, because of what failed."""
    from confluent_kafka import KafkaException

    return is_away(error) or isinstance(error, KafkaException)


def is_away(error: BaseException) -> bool:
    """Whether an error says that the store or the brokers cannot be reached now."""
    if isinstance(error, Away):
        return True
    # Without a store its errors are not loaded, and SQLAlchemy may not be installed.
    errors = sys.modules.get("headrace.store.errors")
    return errors is not None and isinstance(error, (errors.StoreUnavailable, errors.Fenced))
