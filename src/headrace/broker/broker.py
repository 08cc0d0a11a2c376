"""A broker: everything put together in order, and taken apart in the reverse one."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import headrace.broker.handlers  # noqa: F401  # fills the table of handlers
from headrace.broker.alone import Alone
from headrace.broker.clock import Clock, SystemClock
from headrace.broker.groups import GroupService
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.node import Node
from headrace.broker.ports import BrokerAddress, Hooks
from headrace.broker.server import Server
from headrace.broker.topics import TopicService
from headrace.broker.topics_opening import open_topics
from headrace.broker.workers import Workers
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

    node: Node

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
        self._server: Server | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def start(self) -> None:
        """Open the data, recover what needs it, and listen; clients may connect when it returns.

        Raises ConfigError, LogDirError or ListenError with a hint; then nothing is left open.
        """
        node = self.node = Node(self.settings, self._clock)
        try:
            await self._open(node)
            await self._listen(node)
        except BaseException:
            await self._take_apart()
            raise
        node.housekeeping.start()

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

    async def _open(self, node: Node) -> None:
        """Catalog first, then logs: what is served is decided by the catalog alone."""
        settings = self.settings
        dirs = log_dirs(settings)
        for path in {*dirs, metadata_dir(settings)}:
            Path(path).mkdir(parents=True, exist_ok=True)
        store = await SqliteStore.open(Path(metadata_dir(settings)) / FILE_NAME)
        node.catalog = await Catalog.open(store, new_cluster_id())
        address = BrokerAddress(node_id(settings), "", 0)
        node.cluster = Alone(node.catalog.cluster_id, address)
        node.topics = TopicService(node)
        node.logs = LogManager(
            self._files,
            dirs,
            node.topics.log_config({}),
            self._clock.now_ms,
            producer_expiration_ms=settings.int("producer.id.expiration.ms"),
        )
        # One for each cleaner, and one so that producers need not wait for a cleaning.
        node.workers = Workers(settings.int("log.cleaner.threads") + 1)
        node.groups = GroupService(node)
        await open_topics(node)
        node.housekeeping = Housekeeping(node)
        await node.groups.start()

    async def _listen(self, node: Node) -> None:
        self._server = Server(node, self._hooks)
        (bound,) = listeners(self.settings)[:1]
        self.host, self.port = await self._server.start(bound)
        (told,) = advertised_listeners(self.settings)[:1]
        host = told.host if told != bound else self.host
        port = told.port or self.port
        assert isinstance(node.cluster, Alone)
        node.cluster.address = BrokerAddress(
            node.cluster.node_id, host, port, self.settings.optional_str("broker.rack")
        )

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.drain()
        await self._take_apart()
        self._closed.set()

    async def _take_apart(self) -> None:
        node = self.node
        if hasattr(node, "groups"):
            await node.groups.close()
        if self._server is not None:
            await self._server.close()
        if hasattr(node, "housekeeping"):
            node.housekeeping.close()
        if hasattr(node, "workers"):
            await node.workers.close()
        if hasattr(node, "logs"):
            # A last sync may take a while, and nobody is served any more: off the loop.
            await node.run_read(node.logs.close)
        if hasattr(node, "catalog"):
            await node.catalog.close()
        node.close()


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 22 characters of base64."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
