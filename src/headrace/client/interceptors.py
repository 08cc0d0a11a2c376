"""Interceptors: functions of the user that see every record, in order, and never break it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.serializers import load

if TYPE_CHECKING:
    from headrace.client.delivery import RecordMetadata

_log = logging.getLogger("headrace.client")


@dataclass(slots=True)
class Outgoing:
    """A record before it is serialised; an interceptor may change it."""

    topic: str
    value: Any
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Sees every record that is sent and its outcome; override what you need."""

    def on_send(self, record: Outgoing) -> Outgoing | None:
        """Called before serialising; returns the record to send, or None for the one given."""

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Called when the record is written (`metadata`) or has failed (`error`)."""

    def close(self) -> None:
        """Called when the producer closes."""


class ConsumerInterceptor:
    """Sees every record that is read and every offset committed; override what you need."""

    def on_consume(self, records: list[Any]) -> list[Any] | None:
        """Called with what a poll returns; returns what to return, or None for what was given."""

    def on_commit(self, offsets: list[Any]) -> None:
        """Called with the TopicPartitions that were committed."""

    def close(self) -> None:
        """Called when the consumer closes."""


class Chain:
    """Interceptors in the given order; what one raises is logged, and the next is called."""

    def __init__(self, given: Any) -> None:
        self._members = tuple(_made(one) for one in _listed(given))

    def __bool__(self) -> bool:
        return bool(self._members)

    def pass_through(self, method: str, subject: Any) -> Any:
        """The subject after all of them; one that fails leaves it unchanged."""
        for member in self._members:
            passed = self._call(member, method, subject)
            subject = subject if passed is None else passed
        return subject

    def tell(self, method: str, *arguments: Any) -> None:
        """Tell all of them."""
        for member in self._members:
            self._call(member, method, *arguments)

    def _call(self, member: Any, method: str, *arguments: Any) -> Any:
        function = getattr(member, method, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except Exception:
            _log.exception("interceptor %s failed in %s", type(member).__name__, method)
            return None


def _listed(given: Any) -> Iterable[Any]:
    if isinstance(given, str):
        return [name.strip() for name in given.split(",") if name.strip()]
    return given or ()


def _made(given: Any) -> Any:
    if isinstance(given, str):
        given = load(given)
    return given() if isinstance(given, type) else given
