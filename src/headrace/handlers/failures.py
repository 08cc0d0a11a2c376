"""Puts failed messages where they cannot be lost: retry table, own topic, or dead letters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.client.dead_letters import RESENT_HEADER
from headrace.client.message import Message
from headrace.client.produce_errors import is_permanent
from headrace.errors import HandlerError, Unavailable
from headrace.handlers.dead_letters import DeadLetters, check_lease, resend_headers, unchanged
from headrace.handlers.parked_lanes import LaneKey, ParkedLanes
from headrace.handlers.policies import (
    NO_RETRY,
    Backoff,
    DeadLetter,
    Resend,
    SendAgain,
    Step,
    next_step,
)
from headrace.store.fingerprints import describe

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.producer import Producer
    from headrace.handlers.spec import HandlerSpec
    from headrace.large.rows import LargeRows
    from headrace.store import Store
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarms


class Failures:
    """What one handler does with messages that failed; safe from many threads.

    Before a message runs, ask `is_waiting`; if True, call `park_behind`, and run the message only
    if that returns False. While `step` of an error is Again, the caller tries in place; then it
    calls `give_up`, and the message is done when that returns. If a call raises StoreUnavailable or
    a KafkaException, nothing is lost or half done, and the same call may be made again.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        store: Store | None,
        producer: Producer,
        clock: Clock,
        alarms: Alarms,
        *,
        large_rows: LargeRows | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_policy(spec, has_store=store is not None)
        self._spec = spec
        self._store = store
        self._producer = producer
        self._clock = clock
        self._chance = chance
        self._keep = unchanged if large_rows is None else large_rows.to_row
        self._open = unchanged if large_rows is None else large_rows.from_row
        self.dead_letters = DeadLetters(spec, store, producer, clock, alarms, large_rows)
        # Called when a message was parked, to wake the retry job.
        self.on_parked: Callable[[], None] = _nothing
        self._parked = ParkedLanes(spec.order)

    def step(self, error: BaseException, attempts: int) -> Step:
        """What follows failure number `attempts` of one delivery, counted from 1."""
        return next_step(self._spec.retry or NO_RETRY, error, attempts, self._chance())

    def give_up(self, message: Message, error: BaseException, attempts: int) -> None:
        """Put away a message that failed `attempts` times in this delivery; durable on return."""
        attempts += _attempts_before(message)
        step = self.step(error, attempts)
        if isinstance(step, SendAgain) and not self._send_again(message, attempts):
            step = DeadLetter()
        if isinstance(step, SendAgain):
            return
        if isinstance(step, DeadLetter) or self._store is None:
            self.dead_letters.give_up(message, describe(error, self._spec.name), attempts)
        else:
            # Also for Again, when the caller cannot wait for it: then the retry job does.
            self._park(self._store, message, error, attempts, step.delay_ms)

    def failed_again(self, parked: ParkedMessage, error: BaseException) -> None:
        """Put away a message of the retry table that failed again; Fenced if it has a new owner."""
        assert self._store is not None
        attempts = parked.attempts + 1
        step = self.step(error, attempts)
        failure = describe(error, self._spec.name)
        message = self._open(parked.message)
        if isinstance(step, SendAgain) and not self._send_again(message, attempts):
            step = DeadLetter()
        if isinstance(step, DeadLetter):
            self.dead_letters.give_up(message, failure, attempts, parked)
            return
        with self._store.begin() as tx:
            if isinstance(step, SendAgain):
                is_ours = self._store.retries.remove(tx, parked)
            else:
                next_ms = self._clock.now_ms() + step.delay_ms
                is_ours = self._store.retries.postpone(tx, parked, failure, next_ms)
            check_lease(is_ours, parked.message)

    def assigned(self, topic: str, partitions: Iterable[int]) -> None:
        """Learn what is parked or dead in newly assigned partitions, before anything runs."""
        if self._store is None:
            return
        wanted = list(partitions)
        parked = self._store.retries.places(self._spec.name, topic, wanted)
        dead = self._store.dead_letters.places(self._spec.name, topic, wanted)
        self._parked.assigned(topic, wanted, parked, dead, self._clock.monotonic_ms())

    def revoked(self, topic: str, partitions: Iterable[int]) -> None:
        """Forget partitions that have another owner now."""
        self._parked.revoked(topic, partitions)

    @property
    def parking(self) -> bool:
        """Whether anything is parked or dead at all; if not, `is_waiting` need not be asked."""
        return self._parked.any_at(self._clock.monotonic_ms())

    def is_waiting(self, message: Message) -> bool:
        """Whether its key waits in the retry table, or it was put away before; asks memory only."""
        return self._parked.is_waiting(message)

    def park_behind(self, message: Message) -> bool:
        """Park it behind its key, durable on return; False if the key is free: run the message."""
        assert self._store is not None
        handler = self._spec.name
        lane = self._lane_digest(message)
        kept = self._keep(message)
        with self._store.begin() as tx:
            is_dead = self._store.dead_letters.has(tx, handler, message)
            is_parked = not is_dead and self._store.retries.park_behind(tx, handler, kept, lane)
        self._parked.seen_again(message, is_free=not (is_dead or is_parked))
        if is_parked:
            self._note_parked(message)
        return is_dead or is_parked

    def refresh(self) -> None:
        """Release lanes that have nothing in the retry table any more."""
        before = self._parked.waiting()
        if self._store is None or not before:
            return
        parked: set[LaneKey] = set()
        for topic in {lane[0] for lane in before}:
            partitions = sorted({lane[1] for lane in before if lane[0] == topic})
            rows = self._store.retries.places(self._spec.name, topic, partitions)
            parked.update(self._parked.lane(topic, *row) for row in rows)
        self._parked.release(before, parked)

    def _park(
        self, store: Store, message: Message, error: BaseException, attempts: int, delay_ms: int
    ) -> None:
        lane = self._lane_digest(message)
        failure = describe(error, self._spec.name)
        next_ms = self._clock.now_ms() + delay_ms
        kept = self._keep(message)
        with store.begin() as tx:
            store.retries.park(tx, self._spec.name, kept, lane, failure, attempts, next_ms)
        self._note_parked(message)

    def _note_parked(self, message: Message) -> None:
        self._parked.park(message)
        self.on_parked()

    def _send_again(self, message: Message, attempts: int) -> bool:
        """Send it to its own topic; False if that refuses it for good, as when it is too large."""
        headers = [*resend_headers(message), (RESENT_HEADER, str(attempts).encode())]
        try:
            self._producer.send_and_wait(
                message.topic, message.body, key=message.key, headers=headers
            )
        except Exception as refusal:
            if is_permanent(refusal):
                return False
            raise
        return True

    def _lane_digest(self, message: Message) -> str | None:
        from headrace.store.retries import lane_digest

        topic, partition, key = self._parked.lane_of(message)
        return None if isinstance(key, int) else lane_digest(topic, partition, key)


def is_outage(error: BaseException) -> bool:
    """Whether the store or the brokers failed, so that the same call may succeed later."""
    from confluent_kafka import KafkaException

    return isinstance(error, Unavailable | KafkaException)


def check_policy(spec: HandlerSpec, *, has_store: bool) -> None:
    """HandlerError for a retry policy that this handler cannot have."""
    stages = spec.retry.stages if spec.retry else ()
    for stage in stages:
        if isinstance(stage, Backoff) and not has_store:
            raise HandlerError(
                f"handler {spec.name} needs a store for its retry table, but the app has none",
                'App(..., store="sqlite:///shop.db"), or then=Resend()',
            )
        if isinstance(stage, Resend) and spec.order in ("key", "partition"):
            raise HandlerError(
                f"handler {spec.name} re-sends failed messages, which breaks order={spec.order!r}",
                'then=Backoff("1s", "10m") keeps it; or order="none"',
            )


def _attempts_before(message: Message) -> int:
    """The earlier attempts of a re-sent message."""
    header = message.header(RESENT_HEADER) if message.headers else None
    return int(header) if header is not None and header.isdigit() else 0


def _nothing() -> None:
    pass
