"""Values of records that may be large, for readers that want the bytes and nothing else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headrace.errors import Away
from headrace.large.errors import LargeBroken

if TYPE_CHECKING:
    from headrace.handlers.context import AppContext

PAUSE_SECONDS = 0.5


class LargeValues:
    """Finds the value of a record; waits while the place of its body is away."""

    def __init__(self, context: AppContext, closing: threading.Event) -> None:
        from headrace.client.settings import translate

        assert context.large is not None
        config = translate(context.client_settings("consumer"), "consumer")
        self._receiver = context.large.receiver(config, context.alarms, context.clock)
        self._alarms = context.alarms
        self._closing = closing

    def __call__(self, record: Any) -> bytes | None:
        """All its bytes; LargeBroken for a record that has no value of its own."""
        if not record.headers():
            return _value(record)
        found = self._receiver.admit([record])
        if not found:
            raise LargeBroken("it is a part of a message that a compacted topic cannot have")
        is_told = False
        while True:
            try:
                return _value(found[0])
            except Away as away:
                if not is_told:
                    self._alarms.ring("table-waits", f"{record.topic()} waits: {away}")
                is_told = True
                if self._closing.wait(PAUSE_SECONDS):
                    raise


def _value(record: Any) -> bytes | None:
    value: bytes | None = record.value()
    return value
