"""Large messages as a consumer returns them, and as handlers get them."""

from __future__ import annotations

from typing import IO, Any

from headrace.client.message import LAZY_RECORDS, Headers, Message
from headrace.large.bodies import Body, load, open_stream
from headrace.large.headers import without_large


class LargeRecord:
    """A large message in place of its last record, with the methods of the client's own records.

    `value()` reads it into memory each time; `stream()` does not.
    """

    __slots__ = (
        "_error", "_headers", "_key", "_offset", "_record", "_value", "body", "first_offset"
    )  # fmt: skip

    def __init__(self, record: Any, body: Body, offset: int = -1, first_offset: int = -1) -> None:
        """`offset` is where it became whole, if not at `record`; `first_offset` where it began."""
        self.body = body
        self._offset: int = record.offset() if offset < 0 else offset
        self.first_offset = self._offset if first_offset < 0 else first_offset
        self._record = record
        self._headers = without_large(record.headers() or ())
        self._key = record.key()
        self._value: Any = None
        self._error: Any = None
        # Frees the bytes of the last chunk: the body has them too.
        record.set_value(None)

    def __len__(self) -> int:
        return self.body.body_bytes

    def topic(self) -> str:
        return str(self._record.topic())

    def partition(self) -> int:
        return int(self._record.partition())

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int | None:
        epoch: int | None = self._record.leader_epoch()
        return epoch

    def timestamp(self) -> tuple[int, int]:
        kind, at_ms = self._record.timestamp()
        return kind, at_ms

    def headers(self) -> Headers | None:
        return self._headers or None

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        """The value that a deserialiser has set, or all bytes."""
        return load(self.body) if self._value is None else self._value

    def stream(self) -> IO[bytes]:
        """The value as a binary file."""
        return open_stream(self.body)

    def error(self) -> Any:
        return self._error

    def set_key(self, key: Any) -> None:
        self._key = key

    def set_value(self, value: Any) -> None:
        self._value = value

    def set_error(self, error: Any) -> None:
        self._error = error


class LargeMessage(Message):
    """A message whose value is read only on access."""

    __slots__ = ("large",)

    def __init__(self, message: Message, body: Body) -> None:
        super().__init__(
            message.topic,
            message.partition,
            message.offset,
            message.key,
            None,
            without_large(message.headers),
            message.timestamp_ms,
            message.id,
            message.attempt,
        )
        self.large = body

    @property
    def value(self) -> bytes | None:
        """All bytes, read at each access."""
        return load(self.large)

    @value.setter
    def value(self, _none: bytes | None) -> None:
        """Ignored: the constructor of the base class assigns it."""

    @property
    def body(self) -> IO[bytes]:
        """For a producer: a stream."""
        return self.stream()

    def stream(self) -> IO[bytes]:
        """The value as a binary file that is read once, from its beginning."""
        return open_stream(self.large)


def _message(record: LargeRecord, attempt: int) -> Message:
    found = Message(
        record.topic(),
        record.partition(),
        record.offset(),
        record.key(),
        None,
        record.headers() or (),
        record.timestamp()[1],
        attempt=attempt,
    )
    return LargeMessage(found, record.body)


LAZY_RECORDS[LargeRecord] = _message
