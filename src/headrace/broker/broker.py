"""A broker: starts everything in order, and stops it in reverse."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import headrace.broker.apis  # noqa: F401  # fills the table of APIs
from headrace.broker.clock import Clock, SystemClock
from headrace.broker.groups import GroupService
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.log_config import log_config
from headrace.broker.log_dir_moves import LogDirMover
from headrace.broker.node import Node
from headrace.broker.ports import BrokerAddress, Hooks, SingleNodeCluster
from headrace.broker.server import Server
from headrace.broker.topics import TopicService
from headrace.broker.transactions import TransactionService
from headrace.broker.worker_processes import WorkerProcesses
from headrace.config import (
    Settings,
    advertised_listeners,
    listeners,
    log_dirs,
    metadata_dir,
    node_id,
)
from headrace.metadata.catalog import Catalog
from headrace.metadata.sqlite import FILE_NAME, SqliteStore
from headrace.storage import FileSystem, LogManager, OsFileSystem

log = logging.getLogger(__name__)


class Broker:
    """A single-node broker: `start` it, let it serve, `close` it; or use `async with`."""

    # Set by `start`.
    node: Node
    server: Server

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        files: FileSystem | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.settings = settings
        self.host = ""
        self.port = 0
        self._clock = clock or SystemClock()
        self._files = files or OsFileSystem()
        self._hooks = hooks
        # Closes what was opened, in reverse.
        self._opened = AsyncExitStack()
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def start(self) -> None:
        """Open the data, recover what needs it, and listen; clients may connect when it returns.

        Raises ConfigError, LogDirError or ListenError with a hint; then nothing is left open.
        """
        try:
            await self._open()
            await self._listen()
        except BaseException:
            await self._opened.aclose()
            raise
        self.node.housekeeping.start()
        self.node.mover.start()

    async def serve_forever(self) -> None:
        """Wait until the broker is closed."""
        await self._closed.wait()

    async def close(self) -> None:
        """Finish what is under way, sync and close every log; a second call joins the first."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _open(self) -> None:
        """Lock the folders, then read the catalog, then open the logs of its topics."""
        settings = self.settings
        node = self.node = Node(settings, self._clock)
        self._opened.callback(node.close)
        node.logs = LogManager(
            self._files,
            log_dirs(settings),
            log_config(settings, {}),
            self._clock.now_ms,
            producer_expiration_ms=settings.int("producer.id.expiration.ms"),
        )
        # The lock on the folders also keeps a second broker away from the catalog.
        node.logs.open()
        self._opened.callback(node.logs.release)
        folder = Path(metadata_dir(settings))
        folder.mkdir(parents=True, exist_ok=True)
        store = await SqliteStore.open(folder / FILE_NAME)
        self._opened.push_async_callback(store.close)
        node.catalog = await Catalog.open(store, new_cluster_id())
        address = BrokerAddress(node_id(settings), "", 0)
        node.cluster = SingleNodeCluster(node.catalog.cluster_id, address)
        await self._identify_dirs(node)
        node.topics = TopicService(node)
        # One for each cleaner, and one more so that producers do not wait for a cleaning.
        node.workers = WorkerProcesses(settings.int("log.cleaner.threads") + 1)
        self._opened.push_async_callback(node.workers.close)
        await node.topics.start()
        # Off the loop: the last sync may take a while.
        self._opened.push_async_callback(node.run_read, node.logs.close)
        node.housekeeping = Housekeeping(node)
        self._opened.push_async_callback(node.housekeeping.close)
        node.mover = LogDirMover(node)
        self._opened.push_async_callback(node.mover.close)
        node.groups = GroupService(node)
        await node.groups.start()
        node.transactions = TransactionService(node)
        await node.transactions.start()

    async def _identify_dirs(self, node: Node) -> None:
        """Find missing data folders before anything is taken for new or foreign."""
        broker, catalog = node.cluster.node_id, node.catalog
        ids_by_path = node.logs.identify(
            catalog.cluster_id,
            broker,
            catalog.log_dirs.get(str(broker), {}),
            {(topic.name, i) for topic in catalog.topics.values() for i in range(topic.partitions)},
            self.settings.list("headrace.log.dirs.lost"),
        )
        await catalog.set_log_dirs(broker, ids_by_path)

    async def _listen(self) -> None:
        node = self.node
        server = self.server = Server(node, self._hooks)
        self._opened.push_async_callback(server.close)
        (bound,) = listeners(self.settings)[:1]
        self.host, self.port = await server.start(bound)
        self._opened.push_async_callback(server.drain)
        # Groups close first: the drain would wait for members that wait for their group.
        self._opened.push_async_callback(node.groups.close)
        self._opened.push_async_callback(node.transactions.close)
        (advertised,) = advertised_listeners(self.settings)[:1]
        host = advertised.host if advertised != bound else self.host
        port = advertised.port or self.port
        rack = self.settings.optional_str("broker.rack")
        assert isinstance(node.cluster, SingleNodeCluster)
        node.cluster.address = BrokerAddress(node.cluster.node_id, host, port, rack)

    async def _close(self) -> None:
        await self._opened.aclose()
        self._closed.set()


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 22 characters of base64."""
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
