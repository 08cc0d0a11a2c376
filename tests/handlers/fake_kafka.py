"""A producer that a test decides for: every record is taken, refused or left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from headrace.client.errors import DeliveryFailed

Answer = BaseException | None


def failure(code: int) -> DeliveryFailed:
    """A record was not written, for this reason."""
    return DeliveryFailed("a record was not written", error=KafkaError(code))


@dataclass
class FakeSending:
    answer: Answer = None
    is_done: bool = True

    def done(self) -> bool:
        return self.is_done

    def exception(self) -> Answer:
        return self.answer


@dataclass
class Record:
    topic: str
    value: bytes | None
    key: bytes | None
    headers: dict[str, bytes | None]

    @property
    def id(self) -> str:
        return (self.headers["headrace-id"] or b"").decode()


@dataclass
class FakeProducer:
    """`answers` gives the error of a record by its topic; `written` is the log."""

    answers: dict[str, Answer] = field(default_factory=dict)
    written: list[Record] = field(default_factory=list)
    on_flush: Callable[[], None] | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> FakeSending:
        answer = self.answers.get(topic)
        if answer is None:
            self.written.append(Record(topic, value, key, dict(headers)))
        return FakeSending(answer)

    def flush(self, timeout: float) -> int:
        if self.on_flush is not None:
            self.on_flush()
        return 0

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.written]
