"""App: the object with which an application declares its handlers and tables, and runs them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headrace.client.delayed import After, At, by_clock
from headrace.client.payloads import encode, to_send
from headrace.errors import HandlerError
from headrace.handlers.background import BackgroundTasks
from headrace.handlers.context import AppContext
from headrace.handlers.spec import HandlerSpec, make_spec
from headrace.large.large import Large
from headrace.outbox.confirmations import Confirmer
from headrace.telemetry.alarms import Alarm

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.delivery import Sent
    from headrace.handlers.half.checkers import Checker
    from headrace.handlers.half.half import Half
    from headrace.handlers.runner import Runner
    from headrace.handlers.tables import Table
    from headrace.store import Store
    from headrace.store.inbox import InboxPort

Function = TypeVar("Function", bound=Callable[..., Any])

# A topic's limit is waited for as long as a producer waits for room (max.block.ms).
LIMIT_WAIT_SECONDS = 60.0
# How late a signal is noticed.
SIGNAL_POLL_SECONDS = 0.2

_log = logging.getLogger("headrace.app")


class App:
    """The handlers and tables of an application, for the topics of one Kafka cluster.

    `bootstrap` is HOST:PORT[,HOST:PORT]; `store` is a URL (`sqlite:///shop.db`,
    `postgresql+psycopg://...`) or an open Store; `settings` are client settings by Kafka's names;
    `clock` replaces the system's clock in tests; `inbox` replaces the inbox of the store; `large`
    says how messages that are too large for a record are sent (False: not at all).
    """

    def __init__(
        self,
        bootstrap: str,
        store: str | Store | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        inbox: InboxPort | None = None,
        large: Large | bool = True,
    ) -> None:
        self.bootstrap = bootstrap
        self.store_url = store
        self.settings = dict(settings or {})
        self.clock = clock
        self.inbox = inbox
        self.large = (Large() if large else None) if isinstance(large, bool) else large
        self.handlers: dict[str, HandlerSpec] = {}
        self.tables: dict[str, Table] = {}
        self.half_checkers: dict[str, Checker] = {}
        self.error: BaseException | None = None
        self._alarm_callbacks: list[Callable[[Alarm], None]] = []
        self._context: AppContext | None = None
        self._runners: list[Runner] = []
        self._background: BackgroundTasks | None = None
        self._stopped = threading.Event()
        self._stop_requested = False

    def handler(self, *topics: str, **options: Any) -> Callable[[Function], Function]:
        """Make a function the handler of topics; `make_spec` has the options."""

        def register(function: Function) -> Function:
            spec = make_spec(function, topics, **options)
            if spec.name in self.handlers:
                raise HandlerError(
                    f"two handlers have the name {spec.name!r}", 'give one of them name="..."'
                )
            self._refuse_shared_topic(spec)
            self.handlers[spec.name] = spec
            return function

        return register

    def _refuse_shared_topic(self, spec: HandlerSpec) -> None:
        for other in self.handlers.values():
            shared = sorted({*other.topics} & {*spec.topics})
            if shared and other.group == spec.group:
                raise HandlerError(
                    f"{other.name} and {spec.name} both read {shared[0]!r} in group "
                    f"{spec.group!r}, so each would get only a part of its messages",
                    'give one of them another group="...", so that each gets all of them, '
                    "or call both functions from one handler",
                )

    def table(self, topic: str, **options: Any) -> Table:
        """A dictionary of a compacted topic's current state; live once the app runs."""
        from headrace.handlers.tables import Table

        table = self.tables[topic] = Table(topic, **options)
        return table

    def half(self, topic: str, value: object, **options: Any) -> Half:
        """A message that is delivered if the block around the local transaction succeeds.

        For `with` and `async with`; the options are those of `open_half`.
        """
        from headrace.handlers.half.half import open_half

        return open_half(self, topic, value, **options)

    def half_checker(self, group: str) -> Callable[[Function], Function]:
        """Make a function the checker of a producer group's local transactions.

        It gets the payload, the Message, or both, and returns True (it has happened), False (it
        never will) or None (not known yet). Any running app with this checker may be asked.
        """
        from headrace.handlers.half.checkers import register

        return register(self, group)

    def half_store_checker(self, group: str) -> None:
        """Check a producer group by the app's store, for halves that `join` its transactions."""
        from headrace.handlers.half.checkers import register_store

        register_store(self, group)

    def on_alarm(self, callback: Callable[[Alarm], None]) -> Callable[[Alarm], None]:
        """Call a function for every alarm; works as a decorator too."""
        self._alarm_callbacks.append(callback)
        if self._context is not None:
            self._context.alarms.add(callback)
        return callback

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        after: After | None = None,
        at: At | None = None,
    ) -> Sent:
        """Send a message at once, outside any transaction; `result()` waits until it is written.

        Raises TopicSwitchedOff if an operator has switched the topic off, and waits for the
        topic's limit. A binary file or an iterator of bytes as the value is never whole in memory.
        `after` ("15m", a timedelta) and `at` (a time with its zone) deliver it later.
        """
        context = self.context
        context.switches.wait(topic, 1, LIMIT_WAIT_SECONDS)
        after, at = by_clock(context.clock, after, at)
        return context.producer.send(
            topic, to_send(value), key=encode(key), headers=headers, after=after, at=at
        )

    def cancel_delayed(self, id: str) -> Sent:
        """Cancel a delayed message by its `headrace-id`; does nothing once it is delivered."""
        return self.context.producer.cancel_delayed(id)

    @property
    def context(self) -> AppContext:
        """What the handlers share; created on first use and by `start`."""
        if self._context is None:
            self._context = self._make_context()
        return self._context

    @property
    def runners(self) -> list[Runner]:
        """The runners of the handlers while the app runs."""
        return list(self._runners)

    def start(self) -> Self:
        """Create missing tables, start every handler and background task, and return."""
        from headrace.handlers.runner import Runner

        if self._runners:
            raise RuntimeError("the app is already running")
        self._stopped.clear()
        self._stop_requested = False
        self.error = None
        context = self.context
        try:
            if context.store is not None:
                context.store.create()
            for table in self.tables.values():
                table.start(context)
            if self.half_checkers:
                context.halves.make_check_topics(self.half_checkers)
            self._runners = [Runner(spec, context) for spec in self.handlers.values()]
            self._background = BackgroundTasks(context, self._runners)
            self._background.start()
            for runner in self._runners:
                runner.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Let what runs finish, commit, leave the groups and close everything."""
        self._stopped.set()
        for runner in self._runners:
            runner.stop()
        for runner in self._runners:
            runner.join()
        self._runners = []
        if self._background is not None:
            self._background.stop()
            self._background = None
        for table in self.tables.values():
            table.close()
        if self._context is not None:
            self._context.close()
            self._context = None

    def run(self) -> None:
        """Start, and work until a signal or another thread asks to stop.

        Raises the error of a handler that cannot continue.
        """
        self.start()
        try:
            while not self._stopped.wait(SIGNAL_POLL_SECONDS) and not self._stop_requested:
                pass
        finally:
            self.stop()
        if self.error is not None:
            raise self.error

    def request_stop(self) -> None:
        """Make `run` end; may be called from a signal handler."""
        # A signal may interrupt this thread while it holds the event's lock.
        self._stop_requested = True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()
        if error is None and self.error is not None:
            raise self.error

    def _make_context(self) -> AppContext:
        store: Any = self.store_url
        if isinstance(store, str):
            from headrace.store import open_store

            store = open_store(store, **({"clock": self.clock} if self.clock else {}))
        context = AppContext(
            bootstrap=self.bootstrap,
            given=self.settings,
            store=store,
            large=self.large,
            own_inbox=self.inbox,
            on_fatal=self._on_fatal,
        )
        context.confirm = lambda group, messages: Confirmer(context.producer).confirm(
            group, messages
        )
        if self.clock is not None:
            context.clock = self.clock
        for callback in self._alarm_callbacks:
            context.alarms.add(callback)
        return context

    def _on_fatal(self, error: BaseException) -> None:
        """Stop the app because a handler cannot continue: half an app would hide that."""
        _log.error("the app stops: %s", error, exc_info=error)
        self.error = self.error or error
        self._stopped.set()
