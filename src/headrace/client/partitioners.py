"""Which partition a record goes to when the caller does not choose."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from headrace.client.errors import DeliveryFailed

# (topic, key, value, partitions) -> partition; key and value as they go over the wire.
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]

# The next partition is used after this many bytes, the size of a batch by Kafka's default.
STICKY_BYTES = 16_384
COUNT_AGE_SECONDS = 30.0
METADATA_SECONDS = 10.0
PAUSE_SECONDS = 0.05

_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, the same in all languages; not negative, 31 bits wide."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return (hashed ^ hashed >> 15) & 0x7FFF_FFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, where every Kafka client puts it by default."""
    return murmur2(key) % partitions


class RoundRobin:
    """One partition after the other for each topic, whatever the keys are."""

    def __init__(self) -> None:
        self._turns: dict[str, itertools.count[int]] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, itertools.count())
        return next(turns) % partitions


class Sticky:
    """One partition until a batch is full, then the next, whatever the keys are."""

    def __init__(self, batch_bytes: int = STICKY_BYTES) -> None:
        self._batch_bytes = batch_bytes
        self._turns = RoundRobin()
        self._now: dict[str, list[int]] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        now = self._now.get(topic)
        if now is None or now[1] <= 0 or now[0] >= partitions:
            now = [self._turns(topic, key, value, partitions), self._batch_bytes]
            self._now[topic] = now
        now[1] -= len(key or b"") + len(value or b"")
        return now[0]


def by_name(name: str) -> Partitioner | None:
    """A partitioner by its name here or in Java; None for the key's hash, the library's own."""
    short = name.removeprefix("org.apache.kafka.clients.producer.")
    if short in ("key", "DefaultPartitioner", ""):
        return None
    if short in ("round_robin", "RoundRobinPartitioner"):
        return RoundRobin()
    if short in ("sticky", "UniformStickyPartitioner"):
        return Sticky()
    raise ValueError(
        f"partitioner {name!r} is unknown; use key, round_robin, sticky, or a function of "
        "(topic, key, value, partitions)"
    )


class PartitionCounts:
    """How many partitions topics have, refreshed every 30 seconds since topics grow."""

    def __init__(self, client: Any, max_block_ms: int) -> None:
        self._client = client
        self._max_block_s = max_block_ms / 1000
        self._known: dict[str, tuple[int, float]] = {}

    def __call__(self, topic: str) -> int:
        """The count; blocks for a topic that is new, up to `max.block.ms`."""
        known = self._known.get(topic)
        now = time.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        count = self._ask(topic, now + self._max_block_s)
        self._known[topic] = count, now + COUNT_AGE_SECONDS
        return count

    def _ask(self, topic: str, deadline: float) -> int:
        while True:
            left = max(0.1, min(METADATA_SECONDS, deadline - time.monotonic()))
            found = self._client.list_topics(topic, timeout=left).topics[topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            # Asking for a topic may create it, and then it has no leader for a moment.
            if time.monotonic() > deadline:
                raise DeliveryFailed(
                    f"topic {topic!r} cannot be written to: {found.error or 'no partitions'}",
                    f"create it: headrace topic create {topic}",
                    found.error,
                )
            time.sleep(PAUSE_SECONDS)
