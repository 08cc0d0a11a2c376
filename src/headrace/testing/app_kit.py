"""An application under test: its handlers on a broker, a store and a clock of the test's own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.client.message import Message
from headrace.handlers.dead_letters import replay
from headrace.protocol.partitions import TopicPartition
from headrace.testing.broker_thread import BrokerThread
from headrace.testing.clock import VirtualClock
from headrace.testing.kit_services import KitServices
from headrace.testing.topics import Topics
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.scheduler import Scheduler
    from headrace.store import Store
    from headrace.store.dead_letters import Letter
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarm

START_SECONDS = 30.0
SETTLE_SECONDS = 20.0
LOOK_SECONDS = 0.005
# A reader that has not moved for this long may be at the end, because the offsets that are left
# have no records (they are transaction markers, or were compacted); then the topic is read itself.
STILL_SECONDS = 0.05
# One that leaves records unread for this long does not want them now: it is paused.
PAUSED_SECONDS = 1.0
FINISH_MAX = "30d"
STEP_MS_MAX = 86_400_000


def run(
    app: App,
    *,
    store: str | None = None,
    settings: Mapping[str, object] | None = None,
    clock: VirtualClock | None = None,
) -> RunningApp:
    """The application in this process, as a context manager: `with run(app) as world`.

    It has a broker of its own (with these broker settings), a fresh SQLite store if it has a store
    at all (or the one given) and a clock that stands still, so that retries take no real time.
    """
    return RunningApp(app, store, settings, clock or VirtualClock())


class RunningApp:
    """What a test does with an application: send, settle, move time, look.

    The broker itself is on real time, so that its clients work as ever.
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
        self._partitions: dict[str, list[int]] = {}
        # Whether a partition has records from a position to its end; that does not change.
        self._unread: dict[tuple[TopicPartition, int, int], bool] = {}
        self._services: KitServices | None = None

    def __enter__(self) -> Self:
        if self.app.runners:
            raise RuntimeError("the app is already running")
        self.broker.start()
        try:
            # Whatever it has made for its own address is of no use here.
            self.app.stop()
            self.topics = Topics(self.broker.bootstrap)
            for spec in self.app.handlers.values():
                self.topics.create(spec.topics)
            self.topics.create(self.app.tables, {"cleanup.policy": "compact"})
            self.app.bootstrap = self.broker.bootstrap
            self.app.store_url = self._store_url
            self.app.clock = self.clock
            self.app.settings = _without_security(self.app.settings)
            if self.app.large is not None and self.app.large.has_claims:
                # What a test sends and removes is never among the bodies of real messages.
                self.app.large = self.app.large.with_claims(str(self.folder / "large"))
            self.app.context.alarms.add(self.alarms.append)
            self._services = KitServices(self.broker, self.clock, self.app.context.alarms)
            self.app.start()
            self._wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the application, then the broker; the application is as it was before."""
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
        return self.app.context.need_store("this look")

    @property
    def retries(self) -> list[ParkedMessage]:
        """The messages in the retry table, the next one first."""
        from headrace.store.failed_messages import Selection

        return self.store.retries.find(Selection())

    @property
    def dead_letters(self) -> list[Letter]:
        """The dead letters that were neither replayed nor discarded, oldest first."""
        from headrace.store.failed_messages import Selection

        return self.store.dead_letters.find(Selection())

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
        """Send dead letters to their topics again, all or those of a fingerprint."""
        from headrace.store.failed_messages import Selection

        chosen = Selection(fingerprint=fingerprint)
        pages = replay(self.store, self.app.context.producer, chosen, self.app.large)
        return sum(map(len, pages))

    def settle(self, timeout_s: float = SETTLE_SECONDS) -> None:
        """Wait until all is done that can be done now; what waits for its time stays waiting."""
        give_up_at = time.monotonic() + timeout_s
        still_since = time.monotonic()
        behind: dict[TopicPartition, tuple[int, int]] | None = None
        calm = 0
        # Twice, because one thing may be looked at before another hands it something.
        while calm < 2:
            if self.app.error is not None:
                raise self.app.error
            now = time.monotonic()
            if now > give_up_at:
                raise TimeoutError(
                    f"the app is still at work after {timeout_s:g} s: {self._work()}"
                )
            was_behind, behind = behind, self._behind()
            if behind != was_behind or self._work():
                still_since = now
            still_seconds = now - still_since
            is_calm = (
                not behind
                or still_seconds > PAUSED_SECONDS
                or (still_seconds > STILL_SECONDS and not self._has_unread(behind))
            )
            calm = calm + 1 if is_calm and not self._work() else 0
            time.sleep(LOOK_SECONDS)

    def advance(self, duration: str | int) -> None:
        """Move time on, stopping whenever something is due, and settle there."""
        end_ms = self.clock.monotonic_ms() + duration_ms(duration)
        self.settle()
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            self.clock.advance(min(left_ms, self._until_due_ms()))
            self.settle()

    def finish(self, at_most: str | int = FINISH_MAX) -> None:
        """Move time on until no message waits for another try."""
        end_ms = self.clock.monotonic_ms() + duration_ms(at_most)
        self.settle()
        while self._is_waiting():
            left_ms = end_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError(f"messages still wait for another try after {at_most}")
            self.clock.advance(min(left_ms, self._until_due_ms()))
            self.settle()

    def _wait_ready(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        waits: list[tuple[str, Callable[[float], bool]]] = [
            *((runner.spec.name, runner.ready.wait) for runner in self.app.runners),
            *((table.topic, table.wait_ready) for table in self.app.tables.values()),
        ]
        for name, wait in waits:
            while not wait(LOOK_SECONDS):
                if self.app.error is not None:
                    raise self.app.error
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"{name} was not ready in {START_SECONDS:g} s")

    def _behind(self) -> dict[TopicPartition, tuple[int, int]]:
        """Partitions that are not read to their end: how far, and their end."""
        behind: dict[TopicPartition, tuple[int, int]] = {}
        for runner in self.app.runners:
            ends = self.topics.ends(self._places(runner.spec.topics))
            positions = runner.positions()
            for place, end in ends.items():
                # It is unknown, or -1, before the first record.
                position = max(positions.get(place, 0), 0)
                if position < end:
                    behind[place] = position, end
        if self._services is not None:
            self._services.start_needed()
            positions = self._services.positions()
            for place, end in self.topics.ends(self._places(self._services.topics)).items():
                if positions.get(place, 0) < end:
                    behind[place] = positions.get(place, 0), end
        for table in self.app.tables.values():
            end = sum(self.topics.ends(self._places([table.topic])).values())
            if table.records < end:
                behind[table.topic, -1] = table.records, end
        return behind

    def _has_unread(self, behind: Mapping[TopicPartition, tuple[int, int]]) -> bool:
        """Whether any of the offsets that were not read has a record."""
        for place, (position, end) in behind.items():
            key = (place, position, end)
            if key not in self._unread:
                self._unread[key] = place[1] < 0 or self.topics.has_records(place, position)
            if self._unread[key]:
                return True
        return False

    def _places(self, topics: Iterable[str]) -> list[TopicPartition]:
        for topic in topics:
            if topic not in self._partitions:
                self._partitions[topic] = self.topics.partitions(topic)
        return [(topic, part) for topic in topics for part in self._partitions[topic]]

    def _work(self) -> list[str]:
        """What is being done, or could be done right now."""
        work = [
            f"{runner.spec.name} runs messages"
            for runner in self.app.runners
            if runner.scheduler is None or self._is_busy(runner.scheduler)
        ]
        if self._services is not None:
            work += self._services.work()
        store = self.app.context.store
        if store is not None:
            if store.outbox.counts().get("pending"):
                work.append("the outbox has messages to send")
            if _is_past(store.outbox.next_due_ms(), self.clock):
                work.append("the outbox has messages to send again")
            for name in self.app.handlers:
                if _is_past(store.retries.next_due_ms(name), self.clock):
                    work.append(f"a retry of {name} is due")
                if store.spill.count(name):
                    work.append(f"{name} has spilled messages")
        return work

    def _is_busy(self, scheduler: Scheduler) -> bool:
        with scheduler.lock:
            scheduler.lanes.wake(self.clock.monotonic_ms())
            return bool(scheduler.lanes.busy or scheduler.lanes.ready)

    def _in_place_ms(self) -> list[int]:
        """How far off the next tries in place are."""
        now_ms = self.clock.monotonic_ms()
        due_ms = []
        for runner in self.app.runners:
            if runner.scheduler is not None:
                with runner.scheduler.lock:
                    due_ms.append(runner.scheduler.lanes.wake(now_ms))
        return [at_ms - now_ms for at_ms in due_ms if at_ms is not None]

    def _until_due_ms(self) -> int:
        """How far time may move before something is to be tried, and to be waited for."""
        due_ms = [*self._in_place_ms(), STEP_MS_MAX]
        if self._services is not None:
            due_ms += self._services.due_ms()
        store = self.app.context.store
        if store is not None:
            next_ms = [store.retries.next_due_ms(name) for name in self.app.handlers]
            next_ms.append(store.outbox.next_due_ms())
            due_ms += [at_ms - self.clock.now_ms() for at_ms in next_ms if at_ms is not None]
        return max(1, min(due_ms))

    def _is_waiting(self) -> bool:
        has_store = self.app.context.store is not None
        return bool(self._in_place_ms() or (has_store and self.retries))


def _without_security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Client settings without those that only the application's own brokers understand."""
    return {
        name: value
        for name, value in settings.items()
        if not name.startswith(("security.", "sasl.", "ssl."))
    }


def _is_past(due_ms: int | None, clock: VirtualClock) -> bool:
    return due_ms is not None and due_ms <= clock.now_ms()
