"""Alarms: events that need a person, logged and passed to the application's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

_log = logging.getLogger("headrace.alarms")

AlarmName = Literal[
    "consumer-restarts",
    "dead-letter",
    "dead-letter-cut",
    "dead-letter-unsent",
    "delay-dead-letter",
    "delay-held",
    "half-check-failed",
    "half-check-refused",
    "half-contradiction",
    "half-held",
    "half-parked",
    "half-undecided",
    "half-undeliverable",
    "half-unprepared",
    "handler-waits",
    "lag",
    "large-broken",
    "large-incomplete",
    "message-dropped",
    "outbox-failed",
    "outbox-held",
    "outbox-relay",
    "outbox-store",
    "spill",
    "store-away",
    "table-record-refused",
    "table-waits",
]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One event: a stable name, a sentence for people, and details for programs."""

    name: AlarmName
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


class NamedAlarm(NamedTuple):
    """An alarm's name and text, for a pure machine that asks its service to ring it."""

    name: AlarmName
    text: str


class Alarms:
    """Rings alarms; safe from any thread."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Alarm], None]] = []

    def add(self, callback: Callable[[Alarm], None]) -> None:
        """Call `callback` for every alarm from now on, in the thread that rings it."""
        self._callbacks.append(callback)

    def ring(self, name: AlarmName, text: str, **details: Any) -> None:
        """Log a warning and call every callback; an error of a callback is only logged."""
        _log.warning("%s: %s", name, text, extra={"alarm": name, "details": details})
        alarm = Alarm(name, text, details)
        for callback in self._callbacks:
            try:
                callback(alarm)
            except Exception:
                _log.exception("an alarm callback failed on %s", name)
