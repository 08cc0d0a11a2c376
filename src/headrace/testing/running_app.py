"""An application under test: its handlers on a broker, a store and a clock of the test's own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headrace.client.message import Message
from headrace.handlers.dead_letters import replay
from headrace.protocol.partitions import TopicPartition
from headrace.testing.broker_thread import BrokerThread
from headrace.testing.clock import VirtualClock
from headrace.testing.ledger_services import LedgerServices
from headrace.testing.pending_work import PendingWork, Progress
from headrace.testing.topics import BrokerTopics
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.store import Store
    from headrace.store.dead_letters import Letter
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarm

START_SECONDS = 30.0
SETTLE_SECONDS = 20.0
POLL_SECONDS = 0.005
# A reader that has not moved for this long may be at the end, because the remaining offsets have no
# records (they are transaction markers, or were compacted); then the topic itself is read.
STILL_SECONDS = 0.05
# A reader that leaves records unread for this long is paused.
PAUSED_SECONDS = 1.0
FINISH_MAX = "30d"


def run(
    app: App,
    *,
    store: str | None = None,
    settings: Mapping[str, object] | None = None,
    clock: VirtualClock | None = None,
) -> RunningApp:
    """Run an application in this process, as a context manager: `with run(app) as world`.

    It gets a broker of its own (with these broker settings), a fresh SQLite store if it uses a
    store (or the one given), and a clock that stands still, so that retries take no real time.
    """
    return RunningApp(app, store, settings, clock or VirtualClock())


class RunningApp:
    """What a test does with an application: send messages, let it settle, move time, inspect it.

    The broker itself is on real time, so that its clients work as usual.
    """

    def __init__(
        self,
        app: App,
        store: str | None,
        settings: Mapping[str, object] | None,
        clock: VirtualClock,
    ) -> None:
        self.app = app
        self.clock = clock
        self.broker = BrokerThread(settings)
        self.alarms: list[Alarm] = []
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-app-"))
        self._store_url = store
        if store is None and app.store_url is not None:
            self._store_url = f"sqlite:///{self.folder / 'store.db'}"
        self._own = (app.bootstrap, app.store_url, app.clock, app.settings, app.large)
        self._services: LedgerServices | None = None
        self._pending: PendingWork

    def __enter__(self) -> Self:
        if self.app.runners:
            raise RuntimeError("the app is already running")
        self.broker.start()
        try:
            # It may have clients for its own address, which are of no use here.
            self.app.stop()
            self.topics = BrokerTopics(self.broker.bootstrap)
            for spec in self.app.handlers.values():
                self.topics.create(spec.topics)
            self.topics.create(self.app.tables, {"cleanup.policy": "compact"})
            self.app.bootstrap = self.broker.bootstrap
            self.app.store_url = self._store_url
            self.app.clock = self.clock
            self.app.settings = _without_security(self.app.settings)
            if self.app.large is not None and self.app.large.has_claims:
                # A test must not touch the bodies of real messages.
                self.app.large = self.app.large.with_claims(str(self.folder / "large"))
            self.app.context.alarms.add(self.alarms.append)
            self._services = LedgerServices(self.broker, self.clock, self.app.context.alarms)
            self._pending = PendingWork(self.app, self.topics, self._services, self.clock)
            self.app.start()
            self._wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the application, then the broker; the application gets its own settings back."""
        try:
            if self._services is not None:
                self._services.stop()
            self.app.stop()
        finally:
            app = self.app
            app.bootstrap, app.store_url, app.clock, app.settings, app.large = self._own
            self.broker.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def store(self) -> Store:
        """The store of the application."""
        return self.app.context.need_store("store")

    @property
    def retries(self) -> list[ParkedMessage]:
        """The messages in the retry table, the next one first."""
        from headrace.store.failed_messages import MessageSelection

        return self.store.retries.find(MessageSelection())

    @property
    def dead_letters(self) -> list[Letter]:
        """The dead letters that were neither replayed nor discarded, oldest first."""
        from headrace.store.failed_messages import MessageSelection

        return self.store.dead_letters.find(MessageSelection())

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str] | None = None,
    ) -> None:
        """Send a message from outside; it is in its topic when this returns."""
        self.app.send(topic, value, key=key, headers=headers).result(SETTLE_SECONDS)

    def records(self, topic: str) -> list[Message]:
        """All records of a topic, partition by partition."""
        return self.topics.read(topic)

    def replay(self, fingerprint: str | None = None) -> int:
        """Send dead letters again, all or those of a fingerprint; returns how many."""
        from headrace.store.failed_messages import MessageSelection

        chosen = MessageSelection(fingerprint=fingerprint)
        pages = replay(self.store, self.app.context.producer, chosen, self.app.large)
        return sum(map(len, pages))

    def settle(self, timeout_s: float = SETTLE_SECONDS) -> None:
        """Wait until everything is done that can be done now, without moving time."""
        pending = self._pending
        give_up_at = time.monotonic() + timeout_s
        still_since = time.monotonic()
        behind: dict[TopicPartition, Progress] | None = None
        calm = 0
        # Twice, because a part may be checked before another one hands it work.
        while calm < 2:
            if self.app.error is not None:
                raise self.app.error
            now = time.monotonic()
            if now > give_up_at:
                raise TimeoutError(
                    f"the app is still at work after {timeout_s:g} s: {pending.now()}"
                )
            was_behind, behind = behind, pending.behind()
            if behind != was_behind or pending.now():
                still_since = now
            still_seconds = now - still_since
            is_calm = (
                not behind
                or still_seconds > PAUSED_SECONDS
                or (still_seconds > STILL_SECONDS and not pending.has_unread(behind))
            )
            calm = calm + 1 if is_calm and not pending.now() else 0
            time.sleep(POLL_SECONDS)

    def advance(self, duration: str | int) -> None:
        """Move time forward, and settle whenever something is due on the way."""
        end_ms = self.clock.monotonic_ms() + duration_ms(duration)
        self.settle()
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            self.clock.advance(min(left_ms, self._pending.until_due_ms()))
            self.settle()

    def finish(self, at_most: str | int = FINISH_MAX) -> None:
        """Move time forward until no message waits for another try."""
        end_ms = self.clock.monotonic_ms() + duration_ms(at_most)
        self.settle()
        while self._pending.is_retrying():
            left_ms = end_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError(f"messages still wait for another try after {at_most}")
            self.clock.advance(min(left_ms, self._pending.until_due_ms()))
            self.settle()

    def _wait_ready(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        waits: list[tuple[str, Callable[[float], bool]]] = [
            *((runner.spec.name, runner.ready.wait) for runner in self.app.runners),
            *((table.topic, table.wait_ready) for table in self.app.tables.values()),
        ]
        for name, wait in waits:
            while not wait(POLL_SECONDS):
                if self.app.error is not None:
                    raise self.app.error
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{name} was not ready in {START_SECONDS:g} s")


def _without_security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Client settings without those for the security of the application's own brokers."""
    return {
        name: value
        for name, value in settings.items()
        if not name.startswith(("security.", "sasl.", "ssl."))
    }
