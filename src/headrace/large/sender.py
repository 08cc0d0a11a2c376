"""Sends large messages: compressed, then in chunks to one partition, or as a claim check."""

from __future__ import annotations

import hashlib
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.client.delayed import AT_HEADER, DELAY_HEADER, DELAY_TOPIC, TARGET_HEADER
from headrace.client.delivery import Sent
from headrace.client.large import Record
from headrace.client.payloads import is_stream
from headrace.large.body_store import new_name
from headrace.large.errors import LargeRefused
from headrace.large.headers import (
    Chunk,
    Claim,
    HeaderPairs,
    LastChunk,
    chunk_headers,
    claim_headers,
    without_large,
)
from headrace.large.pieces import choose, compress, cut, pieces_of
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.large.large import Large
    from headrace.large.topic_settings import TopicSettingsCache

# How many chunks are in flight at once, which bounds the memory of a sender.
WINDOW_CHUNKS = 8
# Room for what a batch, a chunk's own headers and the record around its value take.
OVERHEAD_BYTES = 2_048
CHUNK_BYTES_MIN = 1_024
# A command to these services is one record.
SERVICE_TOPICS = (DELAY_TOPIC, "headrace.half")

# Sends one record as it is; the last argument gets its outcome.
Put = Callable[[Record, Sent], None]


class LargeSender:
    """Sends the large values of one producer; safe from many threads."""

    def __init__(self, large: Large, topics: TopicSettingsCache, request_bytes_max: int) -> None:
        self.above_bytes = large.above_bytes
        self._large = large
        self._topics = topics
        self._request_bytes_max = request_bytes_max

    def takes(self, value: Any) -> bool:
        """Whether a value is sent here: a stream, or bytes or text above the size."""
        if isinstance(value, str):
            # A character takes four bytes at most.
            return 4 * len(value) > self.above_bytes and len(value.encode()) > self.above_bytes
        if isinstance(value, bytes | bytearray | memoryview):
            return len(value) > self.above_bytes
        return is_stream(value)

    def is_stream(self, value: Any) -> bool:
        """Whether a value is a stream, which no serialiser can take."""
        return is_stream(value)

    def send(self, put: Put, record: Record, sent: Sent) -> None:
        """Send a value; blocks until all but the last record are written, which `sent` is for.

        The last record makes the message whole: if anything fails before it, no reader gets any of
        the message.
        """
        headers = without_large(_pairs(record.headers))
        pieces = pieces_of(record.value)
        # A short stream is an ordinary message.
        beginning = list(_until(pieces, self.above_bytes))
        if sum(map(len, beginning)) <= self.above_bytes:
            put(record._replace(value=b"".join(beginning), headers=headers), sent)
            return
        codec = choose(beginning[0], self._large.compression)
        stored = compress(itertools.chain(_drain(beginning), pieces), codec)
        if self._large.way == "claim":
            self._send_claim(put, record._replace(headers=headers), stored, codec, sent)
        else:
            self._send_chunks(put, record._replace(headers=headers), stored, codec, sent)

    def _send_chunks(
        self, put: Put, record: Record, stored: Iterator[bytes], codec: str, sent: Sent
    ) -> None:
        settings = self._topics.or_defaults(record.topic)
        size = self._chunk_bytes(record, settings.message_bytes_max)
        chunks = cut(stored, size)
        ahead = next(chunks)
        needs_one = settings.is_compacted or record.topic in SERVICE_TOPICS
        following = next(chunks, None)
        if following is None:
            self._put_last(put, record, [], ahead, codec, -1, sent)
            return
        if needs_one:
            self._refuse_without_claims(record.topic, settings.is_compacted)
            rest = itertools.chain((ahead, following), chunks)
            self._send_claim(put, record, rest, codec, sent)
            return
        # The limit of a topic is for batches, and the library might put two chunks into one.
        window = WINDOW_CHUNKS if settings.message_bytes_max >= self._request_bytes_max else 1
        others = itertools.chain((following,), chunks)
        self._put_all(put, record, ahead, others, codec, sent, window)

    def _put_all(
        self,
        put: Put,
        record: Record,
        first: bytes,
        others: Iterable[bytes],
        codec: str,
        sent: Sent,
        window: int,
    ) -> None:
        id = uuid.uuid4().hex
        digests: list[bytes] = []
        total = 0
        flying: deque[Sent] = deque()

        def send(chunk: bytes) -> Sent:
            nonlocal total
            digest = hashlib.sha256(chunk).digest()
            mark = Chunk(id, len(digests), digest, codec)
            outcome = Sent()
            put(record._replace(value=chunk, headers=chunk_headers(mark)), outcome)
            digests.append(digest)
            total += len(chunk)
            return outcome

        # All chunks follow the first to its partition, and the last names the offset of the first.
        written = send(first).result()
        record = record._replace(partition=written.partition)
        waiting: bytes | None = None
        for chunk in others:
            if waiting is not None:
                flying.append(send(waiting))
                if len(flying) >= window:
                    flying.popleft().result()
            waiting = chunk
        while flying:
            flying.popleft().result()
        assert waiting is not None
        self._put_last(put, record, digests, waiting, codec, written.offset, sent, id, total)

    def _put_last(
        self,
        put: Put,
        record: Record,
        digests: list[bytes],
        chunk: bytes,
        codec: str,
        first_offset: int,
        sent: Sent,
        id: str = "",
        total: int = 0,
    ) -> None:
        digest = hashlib.sha256(chunk).digest()
        body = hashlib.sha256(b"".join([*digests, digest])).digest()
        end = LastChunk(len(digests) + 1, total + len(chunk), body, first_offset)
        mark = Chunk(id or uuid.uuid4().hex, len(digests), digest, codec, end)
        put(
            record._replace(value=chunk, headers=[*_pairs(record.headers), *chunk_headers(mark)]),
            sent,
        )

    def _send_claim(
        self, put: Put, record: Record, stored: Iterable[bytes], codec: str, sent: Sent
    ) -> None:
        headers = _pairs(record.headers)
        topic, since_ms = _retention_of(record.topic, dict(headers), time.time_ns() // 1_000_000)
        name = new_name(self._topics.cluster, topic, since_ms, uuid.uuid4().hex)
        claim = write_claim(self._large.body_store.write, name, stored, codec)
        put(
            record._replace(value=name.encode(), headers=[*headers, *claim_headers(claim)]),
            sent,
        )

    def _chunk_bytes(self, record: Record, message_bytes_max: int) -> int:
        """The configured size, or less if the topic or this producer allows less."""
        overhead = OVERHEAD_BYTES + len(record.key or b"")
        overhead += sum(
            len(name) + len(value or b"") + 16 for name, value in _pairs(record.headers)
        )
        bytes_max = min(message_bytes_max, self._request_bytes_max) - overhead
        if bytes_max < CHUNK_BYTES_MIN:
            raise LargeRefused(
                f"key and headers leave no room for chunks in a record of {record.topic}",
                "raise max.message.bytes of the topic, or send a smaller key and fewer headers",
            )
        return min(self._large.chunk_bytes, bytes_max)

    def _refuse_without_claims(self, topic: str, is_compacted: bool) -> None:
        if self._large.claims_url is None:
            why = (
                "the topic is compacted and keeps one record per key"
                if is_compacted
                else "a command to this service must be one record"
            )
            raise LargeRefused(
                f"a large message to {topic} cannot be sent in chunks: {why}",
                'send it as a claim check: Large(way="claim", claims="s3://bucket/large")',
            )


def write_claim(
    write: Callable[[str, Iterable[bytes]], None],
    name: str,
    stored: Iterable[bytes],
    codec: str,
    kind: str = "claim",
) -> Claim:
    """Write a body to its store, and return its claim check."""
    whole = hashlib.sha256()
    total = 0

    def counted() -> Iterator[bytes]:
        nonlocal total
        for piece in stored:
            whole.update(piece)
            total += len(piece)
            yield piece

    write(name, counted())
    return Claim(name, codec, total, whole.digest(), kind)


def _retention_of(topic: str, headers: dict[str, bytes | None], now_ms: int) -> tuple[str, int]:
    """The topic whose retention applies to a body, and the time it counts from: delivery."""
    if topic not in SERVICE_TOPICS:
        return topic, now_ms
    target = (headers.get(TARGET_HEADER) or b"").decode("utf-8", "replace") or topic
    at = (headers.get(AT_HEADER) or b"").decode("utf-8", "replace")
    delay = (headers.get(DELAY_HEADER) or b"").decode("utf-8", "replace")
    try:
        due_ms = int(at) if at else now_ms + (duration_ms(delay) if delay else 0)
    except ValueError:
        # The service will refuse it, with the reason.
        due_ms = now_ms
    return target, max(now_ms, due_ms)


def _pairs(headers: Any) -> HeaderPairs:
    given = headers.items() if isinstance(headers, dict) else headers or ()
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in given]


def _until(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Pieces until there are more than `size` bytes."""
    total = 0
    for piece in pieces:
        yield piece
        total += len(piece)
        if total > size:
            return


def _drain(pieces: list[bytes]) -> Iterator[bytes]:
    """Pieces that are freed as they are used."""
    while pieces:
        yield pieces.pop(0)
