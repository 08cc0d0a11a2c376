"""Large: how an application sends and reads what is too large for one record."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.client.clock import Clock, SystemClock
from headrace.errors import HandlerError
from headrace.large.headers import CODECS
from headrace.large.reassembly import LOAD_BYTES_MAX, Limits
from headrace.large.spool import Room
from headrace.telemetry.alarms import Alarms
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.large.claims import Claims
    from headrace.large.receiving import LargeReceiver
    from headrace.large.sending import LargeSender
    from headrace.large.topic_facts import AskTopics

WAYS = ("chunks", "claim")
# Below Kafka's own limit of a megabyte, with room for key and headers.
CHUNK_BYTES = 786_432
MEMORY_BYTES = 16 << 20
BYTES_MAX = 8 << 30
OPEN_MAX = 100
BEHIND_MAX = 1_000_000
# The library's own default of message.max.bytes.
REQUEST_BYTES_MAX = 1_000_000


class Large:
    """Settings of large messages; given to an App, a Producer or a Consumer as `large=`.

    Sizes are in bytes, durations are text (`10m`) or milliseconds. HandlerError for what cannot be.
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
                raise HandlerError(f"{name}={size} is too small", "at least 1024")
        self.way = way
        self.above_bytes = above_bytes
        self.chunk_bytes = chunk_bytes
        self.compression = compression
        self.claims_url = claims
        self.grace_ms = duration_ms(grace)
        self.limits = Limits(duration_ms(expire), bytes_max, open_max, behind_max, load_bytes_max)
        self.room = Room(memory_bytes, spool_dir)

    @property
    def has_claims(self) -> bool:
        """Whether messages may be sent by claim check."""
        return self.way == "claim" or self.claims_url is not None

    def with_claims(self, url: str) -> Large:
        """The same with another place for bodies."""
        other = copy(self)
        other.claims_url = url
        other.__dict__.pop("claims", None)
        return other

    @cached_property
    def claims(self) -> Claims:
        """Where the bodies of claim checks lie; opened when first needed."""
        from headrace.config import environment
        from headrace.large.claims import open_claims

        return open_claims(self.claims_url or environment.large_url())

    def sender(self, config: Mapping[str, Any]) -> LargeSender:
        """For a producer with these settings of the client library."""
        from headrace.large.sending import LargeSender

        most = int(config.get("message.max.bytes", REQUEST_BYTES_MAX))
        return LargeSender(self, self.facts(config), most)

    def receiver(
        self, config: Mapping[str, Any], alarms: Alarms | None = None, clock: Clock | None = None
    ) -> LargeReceiver:
        """For a consumer with these settings of the client library."""
        from headrace.large.recall import recall
        from headrace.large.receiving import RECALL_MS_MAX, LargeReceiver

        return LargeReceiver(
            self.limits,
            self.room,
            lambda: self.claims,
            partial(recall, dict(config)),
            alarms or Alarms(),
            clock or SystemClock(),
            int(config.get("max.poll.interval.ms", 2 * RECALL_MS_MAX)) // 2,
        )

    def facts(self, config: Mapping[str, Any]) -> AskTopics:
        """What the topics of a cluster allow."""
        from headrace.large.topic_facts import AskTopics

        return AskTopics(config)

    def close(self) -> None:
        """Let go of the place of bodies."""
        claims: Claims | None = self.__dict__.pop("claims", None)
        if claims is not None:
            claims.close()


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise HandlerError(f"{name}={value!r} is not known", f"one of {', '.join(choices)}")
