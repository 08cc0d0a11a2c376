"""Chunks of one partition put together again: who is whole, who is broken, whom nobody finishes.

Pure: digests and offsets only, the bytes lie in a spool. A message lies where its last chunk
lies. Chunks of many messages may be mixed, repeated and in any order; a message is whole when all
its chunks have come as their digests say.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

from headrace.large.headers import Chunk, End
from headrace.large.states import TABLE, Event, Kind, State

# Of messages that are over it is remembered that they are, so that repeats mean nothing.
OVER_MAX = 1_000
OVER = (State.WHOLE, State.BROKEN, State.GIVEN_UP)
LOAD_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What one partition may have open."""

    expire_ms: int
    bytes_max: int
    open_max: int
    # So many records may lie behind the first chunk of a message that is not whole.
    behind_max: int
    # What is read into memory as a whole has no more bytes than this.
    load_bytes_max: int = LOAD_BYTES_MAX


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
    state: State
    digests: dict[int, bytes] = field(default_factory=dict)
    body_bytes: int = 0
    end: End | None = None
    broken: str = ""


class Reassembly:
    """The open messages of one partition."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Open] = {}
        self._over: OrderedDict[str, State] = OrderedDict()

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
        was = self._over.get(chunk.id)
        if was is not None and (was != State.GIVEN_UP or chunk.end is None):
            return Step(TABLE[was, Event.UNNEEDED][1])
        message = self._open.get(chunk.id)
        if message is None:
            # One that was given up and ends after all begins anew.
            self._over.pop(chunk.id, None)
            message = self._open[chunk.id] = Open(chunk.id, offset, now_ms, was or State.NEW)
        message.last_ms = now_ms
        if message.end is None:
            message.end = chunk.end
        is_new = chunk.index not in message.digests
        if is_new:
            self._note(message, chunk, size, is_intact)
        end = message.end
        if end is not None and len(message.digests) >= end.count and not message.broken:
            message.broken = _difference(message, end)
        return Step(self._move(message, _event(message, chunk, is_new)), message.broken)

    def _note(self, message: Open, chunk: Chunk, size: int, is_intact: bool) -> None:
        message.digests[chunk.index] = chunk.digest
        message.body_bytes += size
        if not is_intact:
            message.broken = f"chunk {chunk.index} is not what its digest says"
        elif message.body_bytes > self._limits.bytes_max:
            message.broken = f"it is larger than {self._limits.bytes_max} bytes"

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
            self._move(message, Event.LAPSED)
        return given_up

    def set_aside(self, id: str) -> None:
        """The beginning of a message lies too far back to be read again."""
        self._move(self._open[id], Event.TOO_FAR)

    def begin_again(self, id: str, offset: int, now_ms: int) -> None:
        """What has come of a message could not be kept: all of it is missing, from `offset` on."""
        self._over.pop(id, None)
        self._open[id] = Open(id, offset, now_ms, State.OPEN)

    def _move(self, message: Open, event: Event) -> Kind:
        message.state, kind = TABLE[message.state, event]
        if message.state in OVER:
            del self._open[message.id]
            self._over[message.id] = message.state
            if len(self._over) > OVER_MAX:
                self._over.popitem(last=False)
        return kind


def _event(message: Open, chunk: Chunk, is_new: bool) -> Event:
    """What a chunk is for its message, once it is noted."""
    end = message.end
    if message.broken:
        return Event.WRONG if end is None else Event.DIFFERS
    if end is not None and len(message.digests) >= end.count:
        return Event.FULL
    if not is_new:
        return Event.UNNEEDED
    if end is not None and chunk.end is not None and end.first_offset >= 0:
        return Event.LAST
    return Event.CHUNK


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
