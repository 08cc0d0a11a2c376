"""The services of one broker, as its API functions see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.clock import Clock, SystemClock, Timers
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.metrics import Metrics
from headrace.broker.partition import Partition
from headrace.broker.partitions import Partitions
from headrace.broker.purgatory import Purgatory
from headrace.storage import Syncer

if TYPE_CHECKING:
    from headrace.broker.groups import GroupService
    from headrace.broker.housekeeping import Housekeeping
    from headrace.broker.log_dir_moves import LogDirMover
    from headrace.broker.ports import ClusterPort
    from headrace.broker.sharding import ShardedCoordinator
    from headrace.broker.topics import TopicService
    from headrace.broker.transactions import TransactionService
    from headrace.broker.worker_processes import WorkerProcesses
    from headrace.config import Settings
    from headrace.metadata.catalog import Catalog
    from headrace.storage import LogManager

T = TypeVar("T")

log = logging.getLogger(__name__)


class Node:
    """The services of one broker, put together by `Broker` and passed to every API function."""

    # Set by Broker.start, in this order, before the first request.
    catalog: Catalog
    cluster: ClusterPort
    logs: LogManager
    topics: TopicService
    groups: GroupService
    transactions: TransactionService
    workers: WorkerProcesses
    housekeeping: Housekeeping
    mover: LogDirMover

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.clock = clock
        self.metrics = Metrics()
        # Sessions, retention and the like follow the broker's clock, which tests may move; waits
        # that clients time themselves follow the real clock.
        self.timers = Timers(clock, self.loop)
        self.real_timers = Timers(SystemClock(), self.loop)
        self.produce_purgatory = Purgatory(self.real_timers)
        self.fetch_purgatory = Purgatory(self.real_timers)
        self.partitions = Partitions()
        # The coordinators of this node; each adds itself when it starts.
        self.coordinators: list[ShardedCoordinator[Any]] = []
        self.fetch_sessions = FetchSessions(
            settings.int("max.incremental.fetch.session.cache.slots"), clock.monotonic_ms
        )
        self.fetch_bytes_max = settings.int("fetch.max.bytes")
        self.read_pool = ThreadPoolExecutor(
            settings.int("num.network.threads"), thread_name_prefix="headrace-read"
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.syncer = Syncer(settings.int("num.io.threads"), self.loop.call_soon_threadsafe)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run background work; its failure is logged, and closing cancels it."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())

    async def run_read(self, function: Callable[..., T], *args: object) -> T:
        """Run a function that reads the disk on a thread, so that the loop does not wait."""
        return await self.loop.run_in_executor(self.read_pool, function, *args)

    def open_partition(self, topic: str, topic_id: bytes, index: int) -> Partition:
        """Start serving a partition whose log is open."""
        records = self.logs.get(topic, index)
        assert records is not None, f"{topic}-{index} has no log"
        partition = Partition(self, topic, topic_id, index, records)
        self.partitions.add(partition)
        return partition

    def fail_log_dir(self, partition_dir: str, error: OSError) -> None:
        """Take every partition on a failed disk offline until a restart."""
        failed = self.logs.fail_dir_of(partition_dir, error)
        log.error("log dir %s is offline: %s; its partitions are not served", failed, error)
        for partition in self.partitions:
            if partition.log.offline_error:
                partition.wake()
        # In the next turn of the loop: the failed write may be a coordinator's, which continues
        # with its groups when this returns.
        self.loop.call_soon(self._unload_offline)

    def _unload_offline(self) -> None:
        for coordinator in self.coordinators:
            coordinator.unload_offline()

    def close(self) -> None:
        """Stop timers and threads, after the logs are closed."""
        for task in self._tasks:
            task.cancel()
        self.timers.close()
        self.real_timers.close()
        self.read_pool.shutdown(wait=False)
        self.syncer.close()
