"""The chunks of one partition put together: which message is whole, broken, or given up.

Pure: it knows digests and offsets only, the bytes are in a spool. A message is handed on at the
offset of its last chunk. Chunks of many messages may be mixed, repeated and in any order; a message
is whole when all its chunks have come and match their digests. Every change of a message's state is
a row of `TABLE`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from headrace.large.headers import Chunk, LastChunk

# How many ended messages are remembered, so that repeated chunks of them are dropped.
ENDED_MAX = 1_000
LOAD_BYTES_MAX = 1 << 30


class State(Enum):
    """The state of a message at its reader; the last three are ends."""

    NEW = "nothing of it has come"
    OPEN = "chunks are missing"
    SPOILED = "a chunk does not match its digest, or is one too many; the last is missing"
    RECALLED = "the last chunk is there, and earlier ones are read again"
    WHOLE = "handed on"
    BROKEN = "handed on as broken: a dead letter"
    GIVEN_UP = "not finished in time"


class Event(Enum):
    """What happens to a message."""

    CHUNK = "a chunk"
    UNNEEDED = "a chunk again, or too late"
    WRONG = "a wrong chunk"
    LAST = "the last chunk, earlier ones missing"
    FULL = "the chunk that was missing"
    DIFFERS = "all chunks, but not what was sent"
    LAPSED = "too old, too many, too far behind"
    LOST = "no disk space, or the topic is unavailable"
    TOO_FAR = "its beginning is too far back"


class Effect(Enum):
    """What the receiver does about an event."""

    KEEP = "keep its bytes"
    DROP = "drop it"
    WHOLE = "keep its bytes, hand the message on"
    RECALL = "keep its bytes, read from the first on"
    BROKEN = "ring large-broken, hand it on"
    GIVE_UP = "ring large-incomplete"
    AGAIN = "read it again"


_S, _E, _F = State, Event, Effect

TABLE: dict[tuple[State, Event], tuple[State, Effect]] = {
    (_S.NEW, _E.CHUNK): (_S.OPEN, _F.KEEP),
    (_S.NEW, _E.WRONG): (_S.SPOILED, _F.DROP),
    (_S.NEW, _E.LAST): (_S.RECALLED, _F.RECALL),
    (_S.NEW, _E.FULL): (_S.WHOLE, _F.WHOLE),
    (_S.NEW, _E.DIFFERS): (_S.BROKEN, _F.BROKEN),
    (_S.OPEN, _E.CHUNK): (_S.OPEN, _F.KEEP),
    (_S.OPEN, _E.UNNEEDED): (_S.OPEN, _F.DROP),
    (_S.OPEN, _E.WRONG): (_S.SPOILED, _F.DROP),
    (_S.OPEN, _E.LAST): (_S.RECALLED, _F.RECALL),
    (_S.OPEN, _E.FULL): (_S.WHOLE, _F.WHOLE),
    (_S.OPEN, _E.DIFFERS): (_S.BROKEN, _F.BROKEN),
    (_S.OPEN, _E.LAPSED): (_S.GIVEN_UP, _F.GIVE_UP),
    (_S.OPEN, _E.LOST): (_S.OPEN, _F.AGAIN),
    (_S.SPOILED, _E.WRONG): (_S.SPOILED, _F.DROP),
    (_S.SPOILED, _E.DIFFERS): (_S.BROKEN, _F.BROKEN),
    (_S.SPOILED, _E.LAPSED): (_S.GIVEN_UP, _F.GIVE_UP),
    (_S.RECALLED, _E.CHUNK): (_S.RECALLED, _F.KEEP),
    (_S.RECALLED, _E.UNNEEDED): (_S.RECALLED, _F.DROP),
    # A second last chunk with other chunks missing: two senders share an id. Recall only once.
    (_S.RECALLED, _E.LAST): (_S.RECALLED, _F.KEEP),
    (_S.RECALLED, _E.FULL): (_S.WHOLE, _F.WHOLE),
    (_S.RECALLED, _E.DIFFERS): (_S.BROKEN, _F.BROKEN),
    (_S.RECALLED, _E.LAPSED): (_S.GIVEN_UP, _F.GIVE_UP),
    (_S.RECALLED, _E.LOST): (_S.OPEN, _F.AGAIN),
    (_S.RECALLED, _E.TOO_FAR): (_S.BROKEN, _F.BROKEN),
    (_S.WHOLE, _E.UNNEEDED): (_S.WHOLE, _F.DROP),
    # The disk was full at the very chunk that was missing.
    (_S.WHOLE, _E.LOST): (_S.OPEN, _F.AGAIN),
    (_S.BROKEN, _E.UNNEEDED): (_S.BROKEN, _F.DROP),
    (_S.GIVEN_UP, _E.UNNEEDED): (_S.GIVEN_UP, _F.DROP),
    (_S.GIVEN_UP, _E.CHUNK): (_S.OPEN, _F.KEEP),
    (_S.GIVEN_UP, _E.LAST): (_S.RECALLED, _F.RECALL),
    (_S.GIVEN_UP, _E.FULL): (_S.WHOLE, _F.WHOLE),
    (_S.GIVEN_UP, _E.DIFFERS): (_S.BROKEN, _F.BROKEN),
}
ENDED = (State.WHOLE, State.BROKEN, State.GIVEN_UP)


@dataclass(frozen=True, slots=True)
class ReassemblyLimits:
    """How much one partition may have open."""

    expire_ms: int
    bytes_max: int
    open_max: int
    # How many records may follow the first chunk of a message that is not whole.
    behind_max: int
    # The largest message that may be read into memory as a whole.
    load_bytes_max: int = LOAD_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """What to do with a chunk, and the reason if its message is broken."""

    effect: Effect
    reason: str = ""


@dataclass(slots=True)
class OpenMessage:
    """A message with chunks still missing."""

    id: str
    # Of the first chunk that came; earlier ones that are read again do not change it.
    offset: int
    last_ms: int
    state: State
    digests: dict[int, bytes] = field(default_factory=dict)
    body_bytes: int = 0
    end: LastChunk | None = None
    broken: str = ""


class Reassembly:
    """The open messages of one partition."""

    def __init__(self, limits: ReassemblyLimits) -> None:
        self._limits = limits
        self._open: dict[str, OpenMessage] = {}
        self._ended: OrderedDict[str, State] = OrderedDict()

    @property
    def floor(self) -> int | None:
        """The lowest offset of a chunk that is still needed; a restarted reader starts there."""
        return min((message.offset for message in self._open.values()), default=None)

    def get(self, id: str) -> OpenMessage | None:
        """An open message."""
        return self._open.get(id)

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, chunk: Chunk, offset: int, size: int, is_intact: bool, now_ms: int
    ) -> ChunkOutcome:
        """Note a chunk of `size` bytes; `is_intact` says whether it matches its digest."""
        was = self._ended.get(chunk.id)
        if was is not None and (was != State.GIVEN_UP or chunk.end is None):
            return ChunkOutcome(TABLE[was, Event.UNNEEDED][1])
        message = self._open.get(chunk.id)
        if message is None:
            # A message that was given up but whose last chunk comes after all starts again.
            self._ended.pop(chunk.id, None)
            message = self._open[chunk.id] = OpenMessage(chunk.id, offset, now_ms, was or State.NEW)
        message.last_ms = now_ms
        if message.end is None:
            message.end = chunk.end
        is_new = chunk.index not in message.digests
        if is_new:
            self._note(message, chunk, size, is_intact)
        end = message.end
        if end is not None and len(message.digests) >= end.count and not message.broken:
            message.broken = _difference(message, end)
        return ChunkOutcome(self._move(message, _event(message, chunk, is_new)), message.broken)

    def _note(self, message: OpenMessage, chunk: Chunk, size: int, is_intact: bool) -> None:
        message.digests[chunk.index] = chunk.digest
        message.body_bytes += size
        if not is_intact:
            message.broken = f"chunk {chunk.index} does not match its digest"
        elif message.body_bytes > self._limits.bytes_max:
            message.broken = f"it is too large; the limit is {self._limits.bytes_max} bytes"

    def give_up(self, now_ms: int, next_offset: int) -> list[OpenMessage]:
        """Drop messages that are too old, too many, or too far behind `next_offset`.

        If the last chunk of one comes after all, its chunks are read again from the topic.
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
        """The first chunk of a message is too far back to be read again."""
        self._move(self._open[id], Event.TOO_FAR)

    def begin_again(self, id: str, offset: int, now_ms: int) -> None:
        """The chunks of a message could not be kept: all from `offset` on are missing again."""
        self._ended.pop(id, None)
        self._open[id] = OpenMessage(id, offset, now_ms, State.OPEN)

    def _move(self, message: OpenMessage, event: Event) -> Effect:
        message.state, effect = TABLE[message.state, event]
        if message.state in ENDED:
            del self._open[message.id]
            self._ended[message.id] = message.state
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
        return effect


def _event(message: OpenMessage, chunk: Chunk, is_new: bool) -> Event:
    """What a noted chunk means for its message."""
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
    """The digest of a body: that of the digests of its chunks."""
    whole = hashlib.sha256()
    for index in range(len(digests)):
        whole.update(digests[index])
    return whole.digest()


def _difference(message: OpenMessage, end: LastChunk) -> str:
    """What is wrong with a message that has all its chunks; empty if nothing is."""
    if sorted(message.digests) != list(range(end.count)):
        return f"it has chunks beyond the {end.count} that were sent"
    if message.body_bytes != end.body_bytes:
        return f"it has {message.body_bytes} bytes, but {end.body_bytes} were sent"
    return (
        ""
        if digest_of(message.digests) == end.digest
        else "its chunks are not those that were sent"
    )
