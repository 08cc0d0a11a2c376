"""What the handlers of one app share: store, producer, clock, alarms, event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.client.clock import Clock, SystemClock
from headrace.client.settings import ClientKind, common_settings, settings_of
from headrace.errors import HandlerError
from headrace.handlers.loop import LoopThread
from headrace.telemetry.alarms import Alarms

if TYPE_CHECKING:
    from headrace.client.message import Message
    from headrace.client.producer import Producer
    from headrace.client.switches import Switches
    from headrace.handlers.half.sender import HalfSender
    from headrace.large.large import Large
    from headrace.large.rows import LargeRows
    from headrace.store import Store
    from headrace.store.inbox import InboxPort

Confirm = Callable[[str, Sequence["Message"]], None]


@dataclass(kw_only=True)
class AppContext:
    """The shared parts of a running app; `App` makes it."""

    bootstrap: str
    given: Mapping[str, Any] = field(default_factory=dict)
    store: Store | None = None
    large: Large | None = None
    own_inbox: InboxPort | None = None
    clock: Clock = field(default_factory=SystemClock)
    alarms: Alarms = field(default_factory=Alarms)
    loop: LoopThread = field(default_factory=LoopThread)
    confirm: Confirm | None = None
    on_fatal: Callable[[BaseException], None] = lambda _error: None

    @cached_property
    def producer(self) -> Producer:
        """The producer of dead letters, re-sends and `app.send`; created when first needed."""
        from headrace.client.producer import Producer

        return Producer(self.client_settings("producer"), large=self.large)

    @cached_property
    def large_rows(self) -> LargeRows:
        """How large messages are kept in the store and opened again."""
        from headrace.large.rows import LargeRows

        return LargeRows(self.large, self.store)

    @cached_property
    def halves(self) -> HalfSender:
        """The sender of half messages and their decisions; created when first needed."""
        from headrace.handlers.half.sender import HalfSender

        return HalfSender(self)

    @cached_property
    def switches(self) -> Switches:
        """The live switches of topics, followed once first asked for."""
        from headrace.client.switches import Switches

        return Switches({"bootstrap.servers": self.bootstrap, **self.settings})

    def admit(self, topic: str, records: int, most_s: float) -> float:
        """Ask the live switches; see Switches.admit."""
        return self.switches.admit(topic, records, most_s)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The client settings that every kind of client knows."""
        return common_settings(self.given)

    def client_settings(self, kind: ClientKind) -> dict[str, Any]:
        """Settings of a client, without those that only the other kind has."""
        return settings_of({"bootstrap.servers": self.bootstrap, **self.given}, kind)

    @property
    def inbox(self) -> InboxPort:
        """The inbox that the app was given, or that of the store."""
        return self.own_inbox or self.need_store("an inbox").inbox

    def need_store(self, why: str) -> Store:
        """The store, or a clear error."""
        if self.store is None:
            raise HandlerError(
                f"{why} needs a store", 'App("localhost:9092", store="sqlite:///shop.db")'
            )
        return self.store

    def close(self) -> None:
        """Flush the producer, stop the event loop, close the store."""
        producer: Producer | None = self.__dict__.pop("producer", None)
        if producer is not None:
            producer.close()
        switches: Switches | None = self.__dict__.pop("switches", None)
        if switches is not None:
            switches.close()
        self.loop.stop()
        if self.store is not None:
            self.store.close()
