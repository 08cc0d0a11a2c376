"""A failed message is put where it cannot be lost: retry table, its own topic, or dead letters."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING

from headrace.client.dead_letters import RESENT_HEADER, without_ours
from headrace.client.message import ID_HEADER, Message
from headrace.client.produce_errors import is_permanent
from headrace.errors import HandlerError, Unavailable
from headrace.handlers.dead_letters import DeadLetters, as_it_is
from headrace.handlers.policies import (
    NO_RETRY,
    Backoff,
    DeadLetter,
    Resend,
    SendAgain,
    Step,
    next_step,
)
from headrace.handlers.repeats import Repeats
from headrace.store.fingerprints import describe

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.producer import Producer
    from headrace.handlers.spec import HandlerSpec
    from headrace.large.rows import LargeRows
    from headrace.store import Store
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarms

# What was not committed at a crash comes again at once; asking for ever would cost for ever.
REPEATS_MS = 3_600_000

_Place = tuple[str, int, bytes | int | None]


class Failures:
    """What one handler does with the messages that failed; safe from many threads.

    Right before a message is run, in its lane's turn, ask `holds`; if so, call `park_behind`, and
    run the message only when that says False. While `step` of an error is Again, the caller tries
    in place; then it calls `give_up`, and the message is done when that returns. Whatever one of
    these raises (StoreUnavailable, a KafkaException), the same call may be made again: nothing is
    lost or half done.
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
        self._keep = as_it_is if large_rows is None else large_rows.to_row
        self._open = as_it_is if large_rows is None else large_rows.from_row
        self.dead_letters = DeadLetters(spec, store, producer, clock, alarms, large_rows)
        # Called when a message was parked, so that the retry job knows when to wake up.
        self.on_parked: Callable[[], None] = _nothing
        self._lock = threading.Lock()
        # Lanes that wait in the table, each with the number of its last parking.
        self._held: dict[_Place, int] = {}
        self._parkings = count(1)
        self._repeats = Repeats()
        self._repeats_until_ms = 0

    def step(self, error: BaseException, attempts: int) -> Step:
        """What follows the n-th failure of one delivery, counted from 1."""
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
            self.dead_letters.bury(message, describe(error, self._spec.name), attempts)
        else:
            # An Again comes here when its caller cannot wait for it: then the retry job does.
            self._park(self._store, message, error, attempts, step.delay_ms)

    def failed_again(self, parked: ParkedMessage, error: BaseException) -> None:
        """Put away a message of the retry table that failed once more; Fenced: it is another's."""
        assert self._store is not None
        from headrace.store import Fenced

        attempts = parked.attempts + 1
        step = self.step(error, attempts)
        failure = describe(error, self._spec.name)
        message = self._open(parked.message)
        if isinstance(step, SendAgain) and not self._send_again(message, attempts):
            step = DeadLetter()
        if isinstance(step, DeadLetter):
            self.dead_letters.bury(message, failure, attempts, parked)
            return
        with self._store.begin() as tx:
            if isinstance(step, SendAgain):
                is_ours = self._store.retries.remove(tx, parked)
            else:
                next_ms = self._clock.now_ms() + step.delay_ms
                is_ours = self._store.retries.postpone(tx, parked, failure, next_ms)
            if not is_ours:
                raise Fenced(f"{parked.message.source} has been taken over by another process")

    def assigned(self, topic: str, partitions: Iterable[int]) -> None:
        """Learn what is parked or dead of newly assigned partitions, before any of it is run."""
        if self._store is None:
            return
        wanted = list(partitions)
        parked = self._store.retries.places(self._spec.name, topic, wanted)
        dead = self._store.dead_letters.places(self._spec.name, topic, wanted)
        # Each may come again itself, and by then a parked one may have become a dead letter.
        put_away = set(dead)
        with self._lock:
            for partition, offset, key in parked:
                put_away.add((partition, offset))
                place = self._place(topic, partition, offset, key)
                if not isinstance(place[2], int):
                    self._held[place] = next(self._parkings)
            for number in wanted:
                offsets = [offset for partition, offset in put_away if partition == number]
                self._repeats.add(topic, number, offsets)
            self._repeats_until_ms = self._clock.monotonic_ms() + REPEATS_MS

    def revoked(self, topic: str, partitions: Iterable[int]) -> None:
        """Forget partitions that are another process's now."""
        gone = {(topic, partition) for partition in partitions}
        with self._lock:
            self._held = {
                place: parking for place, parking in self._held.items() if place[:2] not in gone
            }
            for topic, partition in gone:
                self._repeats.forget(topic, partition)

    @property
    def parking(self) -> bool:
        """Whether anything is held at all, so that `holds` is worth a question."""
        if self._repeats and self._clock.monotonic_ms() > self._repeats_until_ms:
            self._repeats = Repeats()
        return bool(self._held or self._repeats)

    def holds(self, message: Message) -> bool:
        """Whether its key waits in the retry table, or it was put away before; asks memory only."""
        topic, partition, offset = message.topic, message.partition, message.offset
        if self._repeats:
            with self._lock:
                if self._repeats.has(topic, partition, offset):
                    return True
        return self._place(topic, partition, offset, message.key) in self._held

    def park_behind(self, message: Message) -> bool:
        """Park it behind its key, durable on return; False: the key is free again, run it."""
        assert self._store is not None
        handler = self._spec.name
        lane = self._lane(message)
        kept = self._keep(message)
        with self._store.begin() as tx:
            is_dead = self._store.dead_letters.has(tx, handler, message)
            is_parked = not is_dead and self._store.retries.park_behind(tx, handler, kept, lane)
        with self._lock:
            self._repeats.done(message.topic, message.partition, message.offset)
            if not (is_dead or is_parked):
                place = self._place(message.topic, message.partition, message.offset, message.key)
                self._held.pop(place, None)
        if is_parked:
            self._hold(message)
        return is_dead or is_parked

    def refresh(self) -> None:
        """Let go of lanes that nothing is parked of any more, so that nobody need ask for them."""
        if self._store is None or not self._held:
            return
        with self._lock:
            before = dict(self._held)
        parked: set[_Place] = set()
        for topic in {place[0] for place in before}:
            partitions = sorted({place[1] for place in before if place[0] == topic})
            rows = self._store.retries.places(self._spec.name, topic, partitions)
            parked.update(self._place(topic, *row) for row in rows)
        with self._lock:
            for place, parking in before.items():
                # One that was parked while the table was read has another number.
                if place not in parked and self._held.get(place) == parking:
                    del self._held[place]

    def _park(
        self, store: Store, message: Message, error: BaseException, attempts: int, delay_ms: int
    ) -> None:
        lane = self._lane(message)
        failure = describe(error, self._spec.name)
        next_ms = self._clock.now_ms() + delay_ms
        kept = self._keep(message)
        with store.begin() as tx:
            store.retries.park(tx, self._spec.name, kept, lane, failure, attempts, next_ms)
        self._hold(message)

    def _hold(self, message: Message) -> None:
        """Keep back what comes behind a message that was parked."""
        place = self._place(message.topic, message.partition, message.offset, message.key)
        if not isinstance(place[2], int):
            with self._lock:
                self._held[place] = next(self._parkings)
        self.on_parked()

    def _send_again(self, message: Message, attempts: int) -> bool:
        """Send it to its own topic; False: that will never take it, as when it is too large."""
        headers = [
            *without_ours(message.headers),
            (ID_HEADER, message.id.encode("utf-8", "replace")),
            (RESENT_HEADER, str(attempts).encode()),
        ]
        try:
            self._producer.send_and_wait(
                message.topic, message.body, key=message.key, headers=headers
            )
        except Exception as refusal:
            if is_permanent(refusal):
                return False
            raise
        return True

    def _place(self, topic: str, partition: int, offset: int, key: bytes | None) -> _Place:
        """What a parked message holds up: its key, its partition, or only itself."""
        if self._spec.order == "partition":
            return (topic, partition, None)
        if self._spec.order != "none" and key is not None:
            return (topic, partition, key)
        return (topic, partition, offset)

    def _lane(self, message: Message) -> str | None:
        from headrace.store.retries import lane_digest

        place = self._place(message.topic, message.partition, message.offset, message.key)[2]
        if isinstance(place, int):
            return None
        return lane_digest(message.topic, message.partition, place)


def is_outage(error: BaseException) -> bool:
    """Whether the store or the brokers failed, so that the same call may succeed later."""
    from confluent_kafka import KafkaException

    return isinstance(error, Unavailable | KafkaException)


def check_policy(spec: HandlerSpec, *, has_store: bool) -> None:
    """Refuse a policy that cannot be kept, with a hint."""
    stages = spec.retry.stages if spec.retry else ()
    for stage in stages:
        if isinstance(stage, Backoff) and not has_store:
            raise HandlerError(
                f"handler {spec.name} keeps failed messages in a retry table, but the app has no "
                "store",
                'App(..., store="sqlite:///shop.db"), or then=Resend()',
            )
        if isinstance(stage, Resend) and spec.order in ("key", "partition"):
            raise HandlerError(
                f"handler {spec.name} re-sends failed messages, which breaks order={spec.order!r}",
                'then=Backoff("1s", "10m") keeps it; or order="none"',
            )


def _attempts_before(message: Message) -> int:
    """The attempts that a re-sent message has behind it."""
    said = message.header(RESENT_HEADER) if message.headers else None
    return int(said) if said is not None and said.isdigit() else 0


def _nothing() -> None:
    pass
