"""The relay: sends the messages of an outbox to Kafka, and again those not confirmed in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.client.clock import Clock
from headrace.client.errors import RateLimited, TopicSwitchedOff
from headrace.client.held_topics import HeldTopics
from headrace.client.message import ID_HEADER
from headrace.client.produce_errors import is_permanent
from headrace.outbox.confirmations import confirm_header
from headrace.store import Store
from headrace.store.errors import StoreUnavailable
from headrace.store.leases import Lease, owner_name
from headrace.store.outbox import OutboxMessage
from headrace.telemetry.alarms import Alarms

LEASE = "outbox"
LEASE_MS = 15_000
# A wait for the broker is interrupted this often to renew the lease.
FLUSH_SECONDS = 2.0
# How late messages of another process, and overdue ones, are noticed.
IDLE_MS = 100
OVERDUE_EVERY_MS = 1_000
CLEAN_EVERY_MS = 60_000
# A virtual clock may be advanced by days at once: it need not stop for every cleaning.
REST_MS_MAX = 86_400_000
STUCK_PAUSE_SECONDS = 1.0
# The pause of a topic that refuses messages, which doubles while that lasts.
HELD_MS_FIRST = 1_000
HELD_MS_MAX = 30_000
# How soon a topic that is switched off, or at its limit, is tried again.
OFF_PAUSE_MS = 1_000
LIMIT_PAUSE_MS = 100

_log = logging.getLogger("headrace.outbox")


class Sending(Protocol):
    """A record on its way, such as `headrace.client.delivery.Sent`."""

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class RelaySender(Protocol):
    """What the relay needs of a producer."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Sending: ...

    def flush(self, timeout: float) -> object: ...


class Admission(Protocol):
    """What the relay needs of the live switches."""

    def admit(self, topic: str, records: int, most_s: float) -> float:
        """Return if the records may be sent now, else raise TopicSwitchedOff or RateLimited."""
        ...


@dataclass(frozen=True, kw_only=True)
class RelayLimits:
    """How much the relay sends at once, how long it waits for confirmations, how often it sends."""

    batch_rows: int = 500
    batch_bytes: int = 16 * 1024 * 1024
    confirm_within_ms: int = 300_000
    sends_max: int = 10
    keep_ms: int = 7 * 24 * 3_600_000


@dataclass(slots=True)
class Outcomes:
    """The outcome of a batch until it is marked in the store."""

    sent: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sent or self.refused or self.held)


class Relay:
    """Sends an outbox; of several relays one works at a time, and the others stand by.

    A message whose row was not yet marked when the process died is sent again with the same id.
    """

    def __init__(
        self,
        store: Store,
        producer: RelaySender,
        switches: Admission | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
        *,
        alarms: Alarms | None = None,
        limits: RelayLimits | None = None,
    ) -> None:
        self._store = store
        self._producer = producer
        self._switches = switches
        self._clock = clock or store.clock
        self._lease = Lease(store.begin, self._clock, LEASE, owner or owner_name(), LEASE_MS)
        self._alarms = alarms or Alarms()
        self._limits = limits or RelayLimits()
        self._held = HeldTopics(HELD_MS_FIRST, HELD_MS_MAX)
        self._unmarked = Outcomes()
        self._stop = threading.Event()
        self._overdue_at_ms = 0
        self._clean_at_ms = 0

    def step(self) -> int:
        """Do what is due now; returns how many messages the broker took.

        Raises StoreUnavailable; what the broker took by then is marked by the next step.
        """
        self._mark()
        if not self._may_work():
            return 0
        self._do_upkeep()
        messages = self._admitted(
            self._store.outbox.pending(
                self._limits.batch_rows, self._limits.batch_bytes, self._held.at(self._now())
            )
        )
        self._send(messages)
        sent = len(self._unmarked.sent)
        self._mark()
        return sent

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, through outages of the database.

        What the broker has not acknowledged by then stays pending, and the next relay sends it.
        """
        self._stop = stop
        is_stuck = False
        while not stop.is_set():
            try:
                if self.step() == 0:
                    self._rest()
                is_stuck = False
            except Exception as problem:
                # Messages wait in the outbox, and the next step may succeed.
                if not is_stuck:
                    is_stuck = True
                    is_expected = isinstance(problem, StoreUnavailable)
                    self._alarms.ring(
                        "outbox-store" if is_expected else "outbox-relay",
                        f"the outbox waits: {problem}",
                    )
                    _log.info("the relay is stuck", exc_info=not is_expected)
                self._lease.forget()
                stop.wait(STUCK_PAUSE_SECONDS)
        self.close()

    def close(self) -> None:
        """Give the lease back, so that the next relay need not wait for its end."""
        try:
            self._lease.drop()
        except StoreUnavailable as problem:
            _log.info("the lease of the outbox was not given back and expires: %s", problem)

    def _rest(self) -> None:
        """Wait for the next thing to do."""
        due_ms = self._store.outbox.next_due_ms()
        wait_ms = REST_MS_MAX if due_ms is None else due_ms - self._clock.now_ms()
        free_ms = self._held.next_free_ms(self._now())
        if free_ms is not None:
            wait_ms = min(wait_ms, free_ms)
        # Overdue messages are checked once a second.
        wait_ms = max(wait_ms, self._overdue_at_ms - self._now(), 1)
        sent = self._store.database.sent
        self._clock.wait(sent, wait_ms, poll_ms=IDLE_MS)
        sent.clear()

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    def _may_work(self) -> bool:
        """Whether this relay has the lease."""
        was_held = self._lease.is_held
        if not self._lease.hold():
            return False
        failed = 0 if was_held else self._store.outbox.failed_count()
        if failed:
            # The process that gave them up may have died before it raised the alarm.
            self._alarms.ring(
                "outbox-failed",
                f"{failed} messages of the outbox have failed and wait for a person: "
                "headrace outbox list --state failed",
                count=failed,
            )
        return True

    def _admitted(self, messages: list[OutboxMessage]) -> list[OutboxMessage]:
        """The messages whose topics are neither switched off nor over their limit."""
        if self._switches is None:
            return messages
        held: dict[str, int] = {}
        admitted = []
        for message in messages:
            if message.topic in held:
                continue
            try:
                self._switches.admit(message.topic, 1, 0.0)
            except TopicSwitchedOff:
                held[message.topic] = OFF_PAUSE_MS
            except RateLimited:
                held[message.topic] = LIMIT_PAUSE_MS
            else:
                admitted.append(message)
        for topic, pause_ms in held.items():
            self._held.hold(topic, self._now(), pause_ms)
        return admitted

    def _send(self, messages: Sequence[OutboxMessage]) -> None:
        """Send messages, wait for the broker's answers and note them."""
        in_flight: list[tuple[OutboxMessage, Sending]] = []
        failures: list[tuple[OutboxMessage, BaseException]] = []
        for message in messages:
            try:
                headers = [*message.headers, (ID_HEADER, message.id.encode())]
                headers += confirm_header(message.waiting)
                sending = self._producer.send(
                    message.topic, message.value, key=message.key, headers=headers
                )
            except Exception as refusal:
                failures.append((message, refusal))
            else:
                in_flight.append((message, sending))
        self._wait(sending for _, sending in in_flight)
        done = [(message, sending.exception()) for message, sending in in_flight if sending.done()]
        sent = [message for message, error in done if error is None]
        self._unmarked.sent = [message.seq for message in sent]
        self._held.release({message.topic for message in sent})
        failures += [(message, error) for message, error in done if error is not None]
        for message, error in failures:
            self._note_failure(message, error)

    def _wait(self, sendings: Iterable[Sending]) -> None:
        unanswered = list(sendings)
        while unanswered and not self._stop.is_set():
            self._producer.flush(FLUSH_SECONDS)
            unanswered = [sending for sending in unanswered if not sending.done()]
            if unanswered:
                try:
                    self._lease.hold()
                except StoreUnavailable as problem:
                    _log.info("the lease of the outbox was not renewed: %s", problem)

    def _note_failure(self, message: OutboxMessage, error: BaseException) -> None:
        if is_permanent(error):
            self._unmarked.refused[message.seq] = str(error)
            self._ring_failed([message.id], f"it cannot be sent: {error}")
            return
        self._unmarked.held[message.seq] = str(error)
        if message.topic in self._held.at(self._now()):
            return
        if self._held.hold(message.topic, self._now()):
            self._alarms.ring(
                "outbox-held",
                f"messages to {message.topic} stay in the outbox: {error}",
                topic=message.topic,
            )

    def _mark(self) -> None:
        if not self._unmarked:
            return
        outbox, outcomes = self._store.outbox, self._unmarked
        with self._store.begin() as tx:
            if outcomes.sent:
                outbox.mark_sent(tx, outcomes.sent, tx.now_ms + self._limits.confirm_within_ms)
            outbox.mark_refused(tx, outcomes.refused)
            outbox.mark_held(tx, outcomes.held)
        self._unmarked = Outcomes()

    def _do_upkeep(self) -> None:
        """Send again what was not confirmed in time; remove what was done long ago."""
        now_ms = self._now()
        if now_ms >= self._overdue_at_ms:
            self._overdue_at_ms = now_ms + OVERDUE_EVERY_MS
            due_ms = self._store.outbox.next_due_ms()
            if due_ms is not None and due_ms <= self._clock.now_ms():
                self._resend_overdue()
        if now_ms >= self._clean_at_ms:
            self._clean_at_ms = now_ms + CLEAN_EVERY_MS
            before_ms = self._clock.now_ms() - self._limits.keep_ms
            while self._store.outbox.clean(before_ms):
                pass

    def _resend_overdue(self) -> None:
        limits = self._limits
        is_more = True
        while is_more:
            with self._store.begin() as tx:
                overdue = self._store.outbox.find_overdue(tx, limits.sends_max, limits.batch_rows)
            if overdue.failed:
                self._ring_failed(overdue.failed, f"not confirmed after {limits.sends_max} sends")
            is_more = limits.batch_rows in (overdue.again, len(overdue.failed))

    def _ring_failed(self, ids: Sequence[str], why: str) -> None:
        self._alarms.ring(
            "outbox-failed",
            f"message {ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''} failed: {why}",
            ids=list(ids),
        )
