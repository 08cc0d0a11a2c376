"""One handler without a broker: a real store, records made by hand, a consumer kept in lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.handlers.failing import Topics
from tests.handlers.records import FakeRecord

from headrace.client.message import ConsumedRecord
from headrace.handlers.chunks import ChunkRunner
from headrace.handlers.context import AppContext
from headrace.handlers.execution import Execution
from headrace.handlers.failures import Failures
from headrace.handlers.lanes import Item, Track
from headrace.handlers.scheduler import Scheduler
from headrace.handlers.spec import make_spec
from headrace.store import Store

Offsets = dict[tuple[str, int], int]


class Stage:
    """A handler with a scheduler whose chunks the test takes and runs itself."""

    def __init__(self, function: Any, store: Store | None, run: Any = None, **options: Any) -> None:
        self.spec = make_spec(function, ["t"], group="g", name="h", **options)
        # Nothing listens there; a client that is made does not say so on standard error.
        given = {"log_level": 0}
        self.context = AppContext(bootstrap="127.0.0.1:1", store=store, given=given)
        topics: Any = Topics()
        clock, alarms = self.context.clock, self.context.alarms
        self.failures = Failures(self.spec, store, topics, clock, alarms)
        self.execution = Execution(self.spec, self.context)
        self.scheduler = Scheduler(self.spec, self.context)
        self.chunks = ChunkRunner(self.execution, self.failures, self.scheduler, run)

    def take(self, *added: tuple[Track, Sequence[int]]) -> list[Item]:
        """A worker's chunk with all of these."""
        for track, offsets in added:
            self.scheduler.add({track: records(track.partition, offsets)})
        with self.scheduler.lock:
            return self.scheduler.lanes.take(100)


def records(partition: int, offsets: Sequence[int]) -> list[ConsumedRecord]:
    """Records of a partition, each with its offset as its key and its value."""
    return [FakeRecord(partition, offset, b"%d" % offset) for offset in offsets]


@dataclass
class FakeConsumer:
    """Commits go to lists; polls return what the test put into `polled`."""

    polled: list[list[ConsumedRecord]] = field(default_factory=list)
    polls: list[int] = field(default_factory=list)
    paused: set[tuple[str, int]] = field(default_factory=set)
    synced: list[Offsets] = field(default_factory=list)
    commits: list[Offsets] = field(default_factory=list)
    on_commit: Any = None

    def poll_batch(self, records_max: int, timeout_s: float) -> list[ConsumedRecord]:
        self.polls.append(records_max)
        return self.polled.pop(0) if self.polled else []

    def pause(self, partitions: Sequence[tuple[str, int]]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Sequence[tuple[str, int]]) -> None:
        self.paused.difference_update(partitions)

    def commit_sync(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.synced.append(dict(offsets))

    def commit_async(self, offsets: Mapping[tuple[str, int], int], on_commit: Any) -> None:
        self.commits.append(dict(offsets))
        self.on_commit = on_commit
