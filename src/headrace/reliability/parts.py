"""What the handlers of one application share: store, producer, clock, alarms, event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from headrace.reliability.alarms import Alarms
from headrace.reliability.clock import Clock, SystemClock
from headrace.reliability.errors import HandlerError

if TYPE_CHECKING:
    from headrace.client.producer import Producer
    from headrace.client.switches import Switches
    from headrace.reliability.half.sending import HalfSender
    from headrace.reliability.large.keeping import Keeping
    from headrace.reliability.large.large import Large
    from headrace.reliability.message import Message
    from headrace.reliability.store import Store
    from headrace.reliability.store.inbox import InboxPort

LOOP_STOP_SECONDS = 10.0

Kind = Literal["producer", "consumer"]
Confirm = Callable[[str, Sequence["Message"]], None]


class LoopThread:
    """The one event loop on which all async handlers run; started when first needed."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="headrace-async", daemon=True)
        self._thread.start()
        return loop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop from another thread and return its result."""
        if self.__dict__.get("_thread") is threading.current_thread():
            # Who waits here for the loop stops it for ever.
            work.close()
            raise HandlerError("an async handler waits for async work", "use `async with` there")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """Cancel what still runs and end the thread; does nothing if it was never needed."""
        loop: asyncio.AbstractEventLoop | None = self.__dict__.pop("loop", None)
        if loop is None:
            return

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=LOOP_STOP_SECONDS) if others else None
            await loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(2 * LOOP_STOP_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(LOOP_STOP_SECONDS)
        loop.close()


@dataclass(kw_only=True)
class Parts:
    """Made by App; a handler's engine takes what it needs."""

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
        """One producer for dead letters, re-sends and `app.send`; made when first needed."""
        from headrace.client.producer import Producer

        return Producer(self.client_settings("producer"), large=self.large)

    @cached_property
    def keeping(self) -> Keeping:
        """How large messages are put away in the store, and come back."""
        from headrace.reliability.large.keeping import Keeping

        return Keeping(self.large, self.store)

    @cached_property
    def halves(self) -> HalfSender:
        """What sends half messages and their decisions; made when first needed."""
        from headrace.reliability.half.sending import HalfSender

        return HalfSender(self)

    @cached_property
    def switches(self) -> Switches:
        """The live switches of topics, followed from the first question on."""
        from headrace.client.switches import Switches

        return Switches({"bootstrap.servers": self.bootstrap, **self.settings})

    def admit(self, topic: str, records: int, most_s: float) -> float:
        """Ask the live switches; see Switches.admit."""
        return self.switches.admit(topic, records, most_s)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The client settings that every kind of client knows."""
        of_both = self.client_settings("consumer").keys() & self.client_settings("producer").keys()
        return {name: value for name, value in self.given.items() if name in of_both}

    def client_settings(self, kind: Kind) -> dict[str, Any]:
        """Settings of a client, without those that only the other kind has."""
        from headrace.client.errors import UnknownSetting
        from headrace.client.settings import read

        address = {"bootstrap.servers": self.bootstrap}
        chosen: dict[str, Any] = dict(address)
        for name, value in self.given.items():
            try:
                read({**address, name: value}, kind)
            except UnknownSetting:
                # Raises for a name that neither of them knows.
                read({**address, name: value}, "consumer" if kind == "producer" else "producer")
            else:
                chosen[name] = value
        return chosen

    @property
    def inbox(self) -> InboxPort:
        """The inbox of the store, unless the application brought another."""
        return self.own_inbox or self.need_store("an inbox").inbox

    def need_store(self, why: str) -> Store:
        """The store, or a clear error."""
        if self.store is None:
            raise HandlerError(
                f"{why} needs a store", 'App("localhost:9092", store="sqlite:///shop.db")'
            )
        return self.store

    def close(self) -> None:
        """Flush the producer, end the loop, close the store."""
        producer: Producer | None = self.__dict__.pop("producer", None)
        if producer is not None:
            producer.close()
        switches: Switches | None = self.__dict__.pop("switches", None)
        if switches is not None:
            switches.close()
        self.loop.stop()
        if self.store is not None:
            self.store.close()
