"""`Large`: the settings of large messages, and what makes senders and receivers of them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.client.clock import Clock, SystemClock
from headrace.errors import HandlerError
from headrace.large.headers import CODECS
from headrace.large.reassembly_machine import LOAD_BYTES_MAX, ReassemblyLimits
from headrace.large.spool import MemoryBudget
from headrace.telemetry.alarms import Alarms
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.large.body_store import BodyStore
    from headrace.large.receiver import LargeReceiver
    from headrace.large.sender import LargeSender
    from headrace.large.topic_settings import TopicSettingsCache

WAYS = ("chunks", "claim")
# Below Kafka's own limit of a megabyte, with room for key and headers.
CHUNK_BYTES = 786_432
MEMORY_BYTES = 16 << 20
BYTES_MAX = 8 << 30
OPEN_MAX = 100
BEHIND_MAX = 1_000_000
# librdkafka's default of message.max.bytes.
REQUEST_BYTES_MAX = 1_000_000


class Large:
    """Settings of large messages; given to an App, a Producer or a Consumer as `large=`.

    Sizes are in bytes; durations are text (`10m`) or milliseconds. HandlerError if a value is not
    valid.
    """

    def __init__(
        self,
        *,
        way: str = "chunks",
        above_bytes: int = CHUNK_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
        compression: str = "gzip",
        claims: str | None = None,
        memory_bytes: int = MEMORY_BYTES,
        spool_dir: str | None = None,
        bytes_max: int = BYTES_MAX,
        load_bytes_max: int = LOAD_BYTES_MAX,
        expire: str | int = "10m",
        open_max: int = OPEN_MAX,
        behind_max: int = BEHIND_MAX,
        grace: str | int = "1d",
    ) -> None:
        _one_of("way", way, WAYS)
        _one_of("compression", compression, CODECS)
        for name, size in (("above_bytes", above_bytes), ("chunk_bytes", chunk_bytes)):
            if size < 1_024:
                raise HandlerError(f"{name}={size} is too small", "use at least 1024")
        self.way = way
        self.above_bytes = above_bytes
        self.chunk_bytes = chunk_bytes
        self.compression = compression
        self.claims_url = claims
        self.grace_ms = duration_ms(grace)
        self.limits = ReassemblyLimits(
            duration_ms(expire), bytes_max, open_max, behind_max, load_bytes_max
        )
        self.memory = MemoryBudget(memory_bytes, spool_dir)

    @property
    def has_claims(self) -> bool:
        """Whether messages may be sent by claim check."""
        return self.way == "claim" or self.claims_url is not None

    def with_claims(self, url: str) -> Large:
        """The same with another body store."""
        other = copy(self)
        other.claims_url = url
        other.__dict__.pop("body_store", None)
        return other

    @cached_property
    def body_store(self) -> BodyStore:
        """Holds the bodies of claim checks; opened when first needed."""
        from headrace.config import environment
        from headrace.large.body_store import open_body_store

        return open_body_store(self.claims_url or environment.large_url())

    def sender(self, config: Mapping[str, Any]) -> LargeSender:
        """A sender for a producer with these librdkafka settings."""
        from headrace.large.sender import LargeSender

        request_bytes_max = int(config.get("message.max.bytes", REQUEST_BYTES_MAX))
        return LargeSender(self, self.topic_settings(config), request_bytes_max)

    def receiver(
        self, config: Mapping[str, Any], alarms: Alarms | None = None, clock: Clock | None = None
    ) -> LargeReceiver:
        """A receiver for a consumer with these librdkafka settings."""
        from headrace.large.receiver import RECALL_MS_MAX, LargeReceiver
        from headrace.large.topic_reader import recall

        return LargeReceiver(
            self.limits,
            self.memory,
            lambda: self.body_store,
            partial(recall, dict(config)),
            alarms or Alarms(),
            clock or SystemClock(),
            int(config.get("max.poll.interval.ms", 2 * RECALL_MS_MAX)) // 2,
        )

    def topic_settings(self, config: Mapping[str, Any]) -> TopicSettingsCache:
        """The settings of topics, for clients with these librdkafka settings."""
        from headrace.large.topic_settings import TopicSettingsCache

        return TopicSettingsCache(config)

    def close(self) -> None:
        """Close the body store."""
        body_store: BodyStore | None = self.__dict__.pop("body_store", None)
        if body_store is not None:
            body_store.close()


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise HandlerError(f"{name}={value!r} is unknown", f"use {' or '.join(choices)}")
