"""Alarms: what a person should hear of, logged and handed to the application's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_log = logging.getLogger("headrace.alarms")


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that went wrong: a stable name, a sentence, and figures."""

    name: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Alarms:
    """Where alarms are rung; safe from any thread."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Alarm], None]] = []

    def add(self, callback: Callable[[Alarm], None]) -> None:
        """Call `callback` for every alarm from now on, in the thread that rings it."""
        self._callbacks.append(callback)

    def ring(self, name: str, text: str, **details: Any) -> None:
        """Log a warning and tell every callback; a callback that fails is logged, never raised."""
        _log.warning("%s: %s", name, text, extra={"alarm": name, "details": details})
        alarm = Alarm(name, text, details)
        for callback in self._callbacks:
            try:
                callback(alarm)
            except Exception:
                _log.exception("an alarm callback failed on %s", name)
