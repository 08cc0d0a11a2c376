"""A handler's failures on a stage: a real store, a topic kept in a list, crashes at will."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.client.errors import RecordTooLarge
from headrace.client.message import Message
from headrace.handlers.execution import InTransaction
from headrace.handlers.failures import Failures
from headrace.handlers.policies import Again, Retry
from headrace.handlers.retries import RetryJob
from headrace.handlers.spec import HandlerSpec, make_spec
from headrace.store import Store
from headrace.store.dead_letters import Letter
from headrace.store.failed_messages import MessageSelection
from headrace.store.retries import ParkedMessage
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import VirtualClock

TOPIC = "orders"


class Crash(BaseException):
    """The process dies here; no handler of errors may stop it."""


@dataclass
class Sent:
    """A record as it was handed to the producer."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: dict[str, bytes | None]


@dataclass
class Topics:
    """A producer whose records lie in a list; `refusal` is raised instead, once for each entry."""

    sent: list[Sent] = field(default_factory=list)
    refusals: list[BaseException] = field(default_factory=list)
    bytes_max: int = 1_000_000

    def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if self.refusals:
            raise self.refusals.pop()
        parts = [value, key, *(part for _, part in headers)]
        if sum(len(part) for part in parts if part is not None) > self.bytes_max:
            raise RecordTooLarge(f"a record of {topic} is too large")
        self.sent.append(Sent(topic, value, key, dict(headers)))

    def of(self, topic: str) -> list[Sent]:
        """The records of a topic."""
        return [sent for sent in self.sent if sent.topic == topic]


def message(offset: int, key: str | None = "k", value: bytes = b"v", **rest: Any) -> Message:
    """A record of the one topic, in partition 0."""
    key_bytes = None if key is None else key.encode()
    return Message(TOPIC, 0, offset, key_bytes, value, **rest)


def spec_of(order: str = "key", retry: Retry | None = None, **options: Any) -> HandlerSpec:
    """A handler's spec; what it does is said where it is run."""

    def bill(_order: bytes) -> None:
        raise AssertionError("the stage runs something else")

    return make_spec(bill, [TOPIC], name="bill", order=order, retry=retry, **options)


class Mortal(Failures):
    """Failures of a process that can die: a dead one puts nothing away, whatever is caught."""

    def failed_again(self, parked: ParkedMessage, error: BaseException) -> None:
        if isinstance(error, Crash):
            raise error
        super().failed_again(parked, error)


class Process:
    """One process that runs the handler: what it knows is lost with it, the store is not."""

    def __init__(
        self,
        spec: HandlerSpec,
        store: Store,
        topics: Topics,
        clock: VirtualClock,
        handle: Callable[[Message], None],
        *,
        is_transactional: bool = True,
    ) -> None:
        self.spec = spec
        self.store = store
        self.clock = clock
        self.handle = handle
        self.rung: list[Alarm] = []
        alarms = Alarms()
        alarms.add(self.rung.append)
        producer: Any = topics
        self.failures = Mortal(spec, store, producer, clock, alarms, chance=lambda: 0.0)
        self.execute = self.execute_in_one if is_transactional else self.execute_apart
        self.job = RetryJob(spec.name, store, self.failures, clock, self.execute)
        self.failures.assigned(TOPIC, [0])

    def execute_apart(self, message: Message, also: InTransaction | None = None) -> None:
        """Run a handler that has no transaction; what else there is has one of its own."""
        self.handle(message)
        if also is not None:
            with self.store.begin() as tx:
                also(tx)

    def execute_in_one(self, message: Message, also: InTransaction | None = None) -> None:
        """Run the handler in one transaction with its inbox row, as the layer does."""
        with self.store.begin() as tx:
            if self.store.inbox.claim(tx, self.spec.name, [message.id], tx.now_ms):
                self.handle(message)
            if also is not None:
                also(tx)

    def receive(self, message: Message) -> None:
        """What a runner does with a message in its lane's turn; done when it returns."""
        if self.failures.is_waiting(message) and self.failures.park_behind(message):
            return
        attempts = 0
        while True:
            try:
                self.execute(message)
            except Exception as error:
                attempts += 1
                if isinstance(self.failures.step(error, attempts), Again):
                    continue
                self.failures.give_up(message, error, attempts)
            return

    @property
    def parked(self) -> list[ParkedMessage]:
        """The retry table."""
        return self.store.retries.find(MessageSelection())

    @property
    def letters(self) -> list[Letter]:
        """The dead letters."""
        return self.store.dead_letters.find(MessageSelection())
