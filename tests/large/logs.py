"""A partition's log made by hand: chunks of messages as records with the client's methods."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.client.clock import Clock
from headrace.large.headers import Chunk, LastChunk, chunk_headers
from headrace.large.reassembly_machine import ReassemblyLimits
from headrace.large.receiver import LargeReceiver
from headrace.large.spool import MemoryBudget
from headrace.telemetry.alarms import Alarm, Alarms

TOPIC = "big"
NO_LIMITS = ReassemblyLimits(expire_ms=10**9, bytes_max=1 << 40, open_max=10**6, behind_max=10**9)


@dataclass
class LogRecord:
    """One record."""

    at: int
    data: bytes | None
    pairs: list[tuple[str, bytes | None]] = field(default_factory=list)
    its_key: bytes | None = b"k"
    place: tuple[str, int] = (TOPIC, 0)

    def __len__(self) -> int:
        return len(self.data or b"")

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> Any:
        return self.pairs or None

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.data

    def set_value(self, value: bytes | None) -> None:
        self.data = value

    def error(self) -> None:
        return None

    def copy(self) -> LogRecord:
        """As another poll would return it."""
        return LogRecord(self.at, self.data, list(self.pairs), self.its_key, self.place)


def chunks_of(
    number: int, parts: Sequence[bytes], first_offset: int = -1
) -> list[tuple[Chunk, bytes]]:
    """The chunks of a message, as its sender makes them."""
    digests = [hashlib.sha256(part).digest() for part in parts]
    end = LastChunk(
        len(parts), sum(map(len, parts)), hashlib.sha256(b"".join(digests)).digest(), first_offset
    )
    last = len(parts) - 1
    return [
        (
            Chunk(f"{number:032x}", index, digests[index], "none", end if index == last else None),
            part,
        )
        for index, part in enumerate(parts)
    ]


def record_of(offset: int, chunk: Chunk, data: bytes) -> LogRecord:
    """A chunk as a record."""
    return LogRecord(offset, data, chunk_headers(chunk))


class Reader:
    """A receiver over a log, with what it has rung."""

    def __init__(
        self,
        log: Sequence[LogRecord],
        clock: Clock,
        limits: ReassemblyLimits = NO_LIMITS,
        room: MemoryBudget | None = None,
    ) -> None:
        self.log = log
        self.alarms: list[Alarm] = []
        alarms = Alarms()
        alarms.add(self.alarms.append)
        self.recalls = 0
        self.room = room or MemoryBudget(1 << 20, None)
        self.receiver = LargeReceiver(limits, self.room, _no_claims, self._recall, alarms, clock)

    def read(self, start: int, end: int) -> list[Any]:
        """Admit the records between two offsets."""
        return self.receiver.admit([it.copy() for it in self.log if start <= it.at < end])

    def _recall(self, _topic: str, _partition: int, start: int, end: int) -> Iterator[Any]:
        self.recalls += 1
        return iter([it.copy() for it in self.log if start <= it.at < end])


def _no_claims() -> Any:
    raise AssertionError("nothing here lies elsewhere")
