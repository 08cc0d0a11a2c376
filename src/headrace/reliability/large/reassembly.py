"""Chunks of one partition put together again: who is whole, who is broken, whom nobody finishes.

Pure: digests and offsets only, the bytes lie in a spool. A message lies where its last chunk
lies. Chunks of many messages may be mixed, repeated and in any order; a message is whole when all
its chunks have come as their digests say.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from headrace.reliability.large.headers import Chunk, End

# Of messages that are over it is remembered that they are, so that repeats mean nothing.
OVER_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one partition may have open."""

    expire_ms: int
    bytes_max: int
    open_max: int
    # So many records may lie behind the first chunk of a message that is not whole.
    behind_max: int


class Kind(Enum):
    """What becomes of a chunk."""

    KEEP = "its bytes are needed"
    REPEAT = "it is known already, or its message is over"
    WHOLE = "its bytes are needed, and its message is whole with them"
    RECALL = "its bytes are needed; of its message something that came before is not at hand"
    BROKEN = "its message has ended, and is not what was sent"


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of a chunk, and the reason if its message is broken."""

    kind: Kind
    reason: str = ""


@dataclass(slots=True)
class Open:
    """A message of which chunks are still missing."""

    id: str
    # Of the first chunk that came; one that is read again later does not change it.
    offset: int
    last_ms: int
    digests: dict[int, bytes] = field(default_factory=dict)
    body_bytes: int = 0
    end: End | None = None
    broken: str = ""


class Reassembly:
    """The open messages of one partition."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Open] = {}
        # True: it was handed on. False: it was given up, and comes again whole with its end.
        self._over: OrderedDict[str, bool] = OrderedDict()

    @property
    def floor(self) -> int | None:
        """The lowest offset of a chunk that is still needed: who starts again starts there."""
        return min((message.offset for message in self._open.values()), default=None)

    def get(self, id: str) -> Open | None:
        """A message that is open."""
        return self._open.get(id)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, chunk: Chunk, offset: int, size: int, is_intact: bool, now_ms: int) -> Step:
        """Take a chunk at an offset, with so many bytes that are or are not as its digest says."""
        was_handed_on = self._over.get(chunk.id)
        if was_handed_on or (was_handed_on is False and chunk.end is None):
            return Step(Kind.REPEAT)
        self._over.pop(chunk.id, None)
        message = self._open.get(chunk.id)
        if message is None:
            message = self._open[chunk.id] = Open(chunk.id, offset, now_ms)
        message.last_ms = now_ms
        if message.end is None:
            message.end = chunk.end
        is_new = chunk.index not in message.digests
        if is_new:
            self._note(message, chunk, size, is_intact)
        if message.end is None:
            return Step(Kind.KEEP if is_new and not message.broken else Kind.REPEAT)
        return self._ended(message, is_new, is_last=chunk.end is not None)

    def _note(self, message: Open, chunk: Chunk, size: int, is_intact: bool) -> None:
        message.digests[chunk.index] = chunk.digest
        message.body_bytes += size
        if not is_intact:
            message.broken = f"chunk {chunk.index} is not what its digest says"
        elif message.body_bytes > self._limits.bytes_max:
            message.broken = f"it is larger than {self._limits.bytes_max} bytes"

    def _ended(self, message: Open, is_new: bool, is_last: bool) -> Step:
        end = message.end
        assert end is not None
        if not message.broken and len(message.digests) >= end.count:
            message.broken = _difference(message, end)
            if not message.broken:
                self._close(message.id, True)
                return Step(Kind.WHOLE)
        if message.broken:
            self._close(message.id, True)
            return Step(Kind.BROKEN, message.broken)
        if is_last and is_new and end.first_offset >= 0:
            return Step(Kind.RECALL)
        return Step(Kind.KEEP if is_new else Kind.REPEAT)

    def give_up(self, now_ms: int, next_offset: int) -> list[Open]:
        """Let go of what nobody finishes: too old, too many, or too far behind `next_offset`.

        One of them that ends after all is put together again from the topic.
        """
        limits = self._limits
        oldest_first = sorted(self._open.values(), key=lambda message: message.last_ms)
        over = len(oldest_first) - limits.open_max
        given_up = [
            message
            for rank, message in enumerate(oldest_first)
            if now_ms - message.last_ms >= limits.expire_ms
            or rank < over
            or next_offset - message.offset > limits.behind_max
        ]
        for message in given_up:
            self._close(message.id, False)
        return given_up

    def _close(self, id: str, was_handed_on: bool) -> None:
        del self._open[id]
        self._over[id] = was_handed_on
        if len(self._over) > OVER_MAX:
            self._over.popitem(last=False)


def digest_of(digests: dict[int, bytes]) -> bytes:
    """The digest of a body by those of its chunks."""
    whole = hashlib.sha256()
    for index in range(len(digests)):
        whole.update(digests[index])
    return whole.digest()


def _difference(message: Open, end: End) -> str:
    """What is wrong with a message that has as many chunks as it should; nothing, mostly."""
    if sorted(message.digests) != list(range(end.count)):
        return f"it has chunks beyond its {end.count}"
    if message.body_bytes != end.body_bytes:
        return f"it has {message.body_bytes} bytes, and was sent with {end.body_bytes}"
    return "" if digest_of(message.digests) == end.digest else "its chunks are not those sent"
