"""What an application under test still has to do: now, or when time moves on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.protocol.partitions import TopicPartition
from headrace.testing.clock import VirtualClock
from headrace.testing.ledger_services import LedgerServices
from headrace.testing.topics import BrokerTopics

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.scheduler import Scheduler

STEP_MS_MAX = 86_400_000

# How far a reader is, and where its partition ends.
Progress = tuple[int, int]


class PendingWork:
    """Looks at an application, its store, its services and its topics from outside."""

    def __init__(
        self, app: App, topics: BrokerTopics, services: LedgerServices, clock: VirtualClock
    ) -> None:
        self._app = app
        self._topics = topics
        self._services = services
        self._clock = clock
        self._partitions: dict[str, list[int]] = {}
        # Whether a partition has records from a position to its end; that does not change.
        self._unread: dict[tuple[TopicPartition, int, int], bool] = {}

    def behind(self) -> dict[TopicPartition, Progress]:
        """The partitions that are not read to their end."""
        behind: dict[TopicPartition, Progress] = {}
        for runner in self._app.runners:
            ends = self._topics.ends(self._places(runner.spec.topics))
            positions = runner.positions()
            for place, end in ends.items():
                # The position is unknown, or -1, before the first record.
                position = max(positions.get(place, 0), 0)
                if position < end:
                    behind[place] = position, end
        self._services.start_needed()
        positions = self._services.positions()
        for place, end in self._topics.ends(self._places(self._services.topics)).items():
            if positions.get(place, 0) < end:
                behind[place] = positions.get(place, 0), end
        for table in self._app.tables.values():
            end = sum(self._topics.ends(self._places([table.topic])).values())
            if table.records < end:
                behind[table.topic, -1] = table.records, end
        return behind

    def has_unread(self, behind: Mapping[TopicPartition, Progress]) -> bool:
        """Whether there is a record at any offset that was not read."""
        for place, (position, end) in behind.items():
            key = (place, position, end)
            if key not in self._unread:
                self._unread[key] = place[1] < 0 or self._topics.has_records(place, position)
            if self._unread[key]:
                return True
        return False

    def _places(self, topics: Iterable[str]) -> list[TopicPartition]:
        for topic in topics:
            if topic not in self._partitions:
                self._partitions[topic] = self._topics.partitions(topic)
        return [(topic, part) for topic in topics for part in self._partitions[topic]]

    def now(self) -> list[str]:
        """What is being done, or could be done at once, in words."""
        work = [
            f"{runner.spec.name} runs messages"
            for runner in self._app.runners
            if runner.scheduler is None or self._is_busy(runner.scheduler)
        ]
        work += self._services.work()
        store = self._app.context.store
        if store is not None:
            if store.outbox.counts().get("pending"):
                work.append("the outbox has messages to send")
            if _is_past(store.outbox.next_due_ms(), self._clock):
                work.append("the outbox has messages to send again")
            for name in self._app.handlers:
                if _is_past(store.retries.next_due_ms(name), self._clock):
                    work.append(f"a retry of {name} is due")
                if store.spill.count(name):
                    work.append(f"{name} has spilled messages")
        return work

    def _is_busy(self, scheduler: Scheduler) -> bool:
        with scheduler.lock:
            scheduler.lanes.wake(self._clock.monotonic_ms())
            return bool(scheduler.lanes.busy or scheduler.lanes.ready)

    def _in_place_ms(self) -> list[int]:
        """In how many milliseconds the next retries in place are due."""
        now_ms = self._clock.monotonic_ms()
        due_ms = []
        for runner in self._app.runners:
            if runner.scheduler is not None:
                with runner.scheduler.lock:
                    due_ms.append(runner.scheduler.lanes.wake(now_ms))
        return [at_ms - now_ms for at_ms in due_ms if at_ms is not None]

    def until_due_ms(self) -> int:
        """How far time may move before something is due."""
        due_ms = [*self._in_place_ms(), STEP_MS_MAX]
        due_ms += self._services.due_ms()
        store = self._app.context.store
        if store is not None:
            next_ms = [store.retries.next_due_ms(name) for name in self._app.handlers]
            next_ms.append(store.outbox.next_due_ms())
            due_ms += [at_ms - self._clock.now_ms() for at_ms in next_ms if at_ms is not None]
        return max(1, min(due_ms))

    def is_retrying(self) -> bool:
        """Whether a message waits for another try."""
        from headrace.store.failed_messages import MessageSelection

        store = self._app.context.store
        if self._in_place_ms():
            return True
        return store is not None and bool(store.retries.find(MessageSelection()))


def _is_past(due_ms: int | None, clock: VirtualClock) -> bool:
    return due_ms is not None and due_ms <= clock.now_ms()
