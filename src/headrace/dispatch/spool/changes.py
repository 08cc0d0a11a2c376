"""What happens to items in a spool, and the entries that come of it; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Put(NamedTuple):
    """An item was submitted."""

    id: str
    value: bytes
    submitted_ms: int


class Sent(NamedTuple):
    """An item lies in the work topic now, and waits for its outcome."""

    id: str
    partition: int
    offset: int


class Back(NamedTuple):
    """An item was refused, or its send failed: it waits to be sent again."""

    id: str


class Done(NamedTuple):
    """TOPIC.done says that an item is finished: it leaves the spool."""

    id: str


class Read(NamedTuple):
    """TOPIC.done has been read up to here."""

    partition: int
    next_offset: int


Change = Put | Sent | Back | Done | Read
Place = tuple[int, int]


@dataclass(slots=True)
class Entry:
    """An item that is not finished; `sent` is where it lies in the work topic, if it does."""

    id: str
    value: bytes
    submitted_ms: int
    sent: Place | None = None


@dataclass(slots=True)
class Entries:
    """All unfinished items in the order of their submission, and how far TOPIC.done was read."""

    items: dict[str, Entry] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    value_bytes: int = 0

    def apply(self, changes: Iterable[Change]) -> None:
        """Take changes in; one about an item that is gone does nothing."""
        items = self.items
        for change in changes:
            if isinstance(change, Put):
                if change.id not in items:
                    items[change.id] = Entry(change.id, change.value, change.submitted_ms)
                    self.value_bytes += len(change.value)
            elif isinstance(change, Read):
                self.read[change.partition] = change.next_offset
            elif isinstance(change, Done):
                entry = items.pop(change.id, None)
                if entry is not None:
                    self.value_bytes -= len(entry.value)
            elif (entry := items.get(change.id)) is not None:
                entry.sent = change[1:] if isinstance(change, Sent) else None

    def changes(self) -> Iterable[Change]:
        """The shortest history that gives the same entries."""
        for entry in self.items.values():
            yield Put(entry.id, entry.value, entry.submitted_ms)
            if entry.sent is not None:
                yield Sent(entry.id, *entry.sent)
        for partition, next_offset in self.read.items():
            yield Read(partition, next_offset)
