"""What producers and consumers need of large messages; `headrace.Large` implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.delivery import Sent
    from headrace.client.message import ConsumedRecord


class Record(NamedTuple):
    """A record as it goes to the library; a partition of -1 is the library's choice."""

    topic: str
    value: Any
    key: bytes | None
    headers: Any
    partition: int
    timestamp_ms: int


class Sender(Protocol):
    """Sends values that are too large for one record."""

    above_bytes: int

    def takes(self, value: Any) -> bool:
        """Whether a value is that large."""
        ...

    def is_stream(self, value: Any) -> bool:
        """Whether a value is read piece by piece, so that no serialiser can take it."""
        ...

    def send(self, put: Callable[[Record, Sent], None], record: Record, sent: Sent) -> None:
        """Send it by `put`; `sent` is called with the outcome of the last record."""
        ...


class Receiver(Protocol):
    """Puts large messages together from their records; used by one thread."""

    def admit(self, records: Sequence[ConsumedRecord]) -> list[ConsumedRecord]:
        """The records to return: ordinary ones, and large messages that are now complete."""
        ...

    def floors(self) -> Mapping[TopicPartition, int]:
        """Where a reader would have to restart, of partitions with incomplete messages."""
        ...

    def left(self) -> Sequence[ConsumedRecord]:
        """The records that it was given and that the next `admit` continues with, in order."""
        ...

    def expire(self) -> None:
        """Give up incomplete messages that are too old."""
        ...

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """These partitions are no longer read, or from another offset."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class LargeMessages(Protocol):
    """How large messages are sent and read."""

    def sender(self, config: Mapping[str, Any]) -> Sender:
        """For a producer with these settings of the library."""
        ...

    def receiver(self, config: Mapping[str, Any]) -> Receiver:
        """For a consumer with these settings of the library."""
        ...
