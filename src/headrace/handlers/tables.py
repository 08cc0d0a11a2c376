"""Tables: the current state of a compacted topic as a dictionary in memory."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

from headrace.client.payloads import decoder
from headrace.errors import HandlerError, Unavailable, UndecodablePayload
from headrace.handlers.large import LargeValues

if TYPE_CHECKING:
    from headrace.client.compacted import CompactedReader
    from headrace.handlers.context import AppContext
    from headrace.telemetry.alarms import Alarms

# A lookup waits this long for the table to be complete.
READY_SECONDS = 60.0


class TableNotReady(Unavailable):
    """The table has not yet read its topic to the end; try again later."""


class Table(Mapping[Any, Any]):
    """The latest value of every key of a compacted topic; read only, safe from many threads.

    It is read from offset zero when the app starts, then follows the topic; a record without a
    value deletes its key. A lookup waits until the table has caught up. `key` and `value` are the
    types to decode to: str, bytes, a msgspec Struct, a dataclass, a pydantic model. A record that
    cannot be decoded rings an alarm and leaves its key as it was.
    """

    def __init__(
        self, topic: str, *, key: Any = str, value: Any = bytes, ready_s: float = READY_SECONDS
    ) -> None:
        self.topic = topic
        self._decode_key = decoder(key)
        self._decode_value = decoder(value)
        self._ready_s = ready_s
        self._rows: dict[Any, Any] = {}
        # How many records were read so far.
        self.records = 0
        self._reader: CompactedReader | None = None
        self._alarms: Alarms | None = None
        self._closing = threading.Event()

    def start(self, context: AppContext) -> None:
        """Start reading, and return at once."""
        from headrace.client.compacted import CompactedReader

        self._rows = {}
        self.records = 0
        self._alarms = context.alarms
        self._closing.clear()
        value_of = None
        if context.large is not None:
            value_of = LargeValues(context, self._closing)
        self._reader = CompactedReader(
            context.bootstrap,
            self.topic,
            self._on_record,
            settings=context.settings,
            value_of=value_of,
        )

    def close(self) -> None:
        """Stop following the topic; what was read stays."""
        self._closing.set()
        if self._reader is not None:
            self._reader.close()

    @property
    def ready(self) -> bool:
        """Whether everything that was in the topic at the start has been read."""
        return self._reader is not None and self._reader.caught_up.is_set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until it is ready; False after the timeout."""
        return self._reader is not None and self._reader.caught_up.wait(timeout_s)

    def __getitem__(self, key: Any) -> Any:
        return self._complete()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._complete())

    def __contains__(self, key: object) -> bool:
        return key in self._complete()

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values as they are now."""
        return self.snapshot().items()

    def values(self) -> ValuesView[Any]:
        """The values as they are now."""
        return self.snapshot().values()

    def snapshot(self) -> dict[Any, Any]:
        """A copy that does not change when the topic does."""
        return self._complete().copy()

    def __repr__(self) -> str:
        return f"<Table {self.topic} {len(self._rows)} keys{'' if self.ready else ', not ready'}>"

    def _complete(self) -> dict[Any, Any]:
        reader = self._reader
        if reader is None:
            raise HandlerError(
                f"the table of {self.topic} is not live", "a table is live while its app runs"
            )
        if not reader.caught_up.is_set() and not reader.caught_up.wait(self._ready_s):
            raise TableNotReady(
                f"the table of {self.topic} has not caught up within {self._ready_s:g} s",
                "are the brokers reachable?",
            )
        return self._rows

    def _on_record(self, key: bytes, value: bytes | None) -> None:
        try:
            name = self._decode_key(key)
            if value is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = self._decode_value(value)
        except UndecodablePayload as problem:
            assert self._alarms is not None
            self._alarms.ring(
                "table-record-refused",
                f"skipped a record of {self.topic} with key {key[:60]!r}: {problem}",
                topic=self.topic,
                key=key,
            )
        self.records += 1
