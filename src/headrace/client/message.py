"""One record of a topic as handlers, retries and dead letters know it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

ID_HEADER = "headrace-id"
CONFIRM_HEADER = "headrace-confirm"

Headers = Sequence[tuple[str, bytes | None]]


class ConsumedRecord(Protocol):
    """A record as a consumer hands it over; its length is its size in bytes."""

    def topic(self) -> str: ...

    def partition(self) -> int: ...

    def offset(self) -> int: ...

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...

    def headers(self) -> Headers | None: ...

    def timestamp(self) -> tuple[int, int]: ...

    def __len__(self) -> int: ...


# Records whose value is not in memory make messages of their own kind, from the record and the
# number of the attempt.
LAZY_RECORDS: dict[type, Callable[[Any, int], Message]] = {}


class Message:
    """A record: `value` and `key` are the bytes on the wire; `id` tells repeats apart.

    `attempt` counts from 1. A handler must not change its message.
    """

    __slots__ = (
        "attempt", "headers", "id", "key", "offset", "partition", "timestamp_ms", "topic", "value"
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int = 0,
        id: str = "",
        attempt: int = 1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.id = id or default_id(headers, topic, partition, offset)
        self.attempt = attempt

    @classmethod
    def from_record(cls, record: ConsumedRecord, attempt: int = 1) -> Message:
        """The message of a confluent-kafka record."""
        lazy = LAZY_RECORDS.get(type(record))
        if lazy is not None:
            return lazy(record, attempt)
        return cls(
            record.topic(),
            record.partition(),
            record.offset(),
            record.key(),
            record.value(),
            record.headers() or (),
            record.timestamp()[1],
            attempt=attempt,
        )

    @property
    def source(self) -> str:
        """TOPIC/PARTITION/OFFSET of the record."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def body(self) -> bytes | IO[bytes] | None:
        """The value as a producer takes it: bytes, or the stream of a large one."""
        return self.value

    def stream(self) -> IO[bytes]:
        """The value as a binary file; that of a large message is never whole in memory."""
        return io.BytesIO(self.value or b"")

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or None."""
        return find_header(self.headers, name)

    def __repr__(self) -> str:
        return f"<Message {self.source} id={self.id!r} attempt={self.attempt}>"


def find_header(headers: Headers, name: str) -> bytes | None:
    """The last header of that name, as Kafka's own clients do."""
    for header, value in reversed(headers):
        if header == name:
            return value
    return None


def default_id(headers: Headers, topic: str, partition: int, offset: int) -> str:
    """The header `headrace-id`, which resends and replays keep, or else the source."""
    given = find_header(headers, ID_HEADER) if headers else None
    return given.decode("utf-8", "replace") if given else f"{topic}/{partition}/{offset}"
