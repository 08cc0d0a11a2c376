"""Calls the API functions of a real broker, through the real codecs but without a socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tests.waiting import WAIT_SECONDS

from headrace.broker.broker import Broker
from headrace.broker.clock import Clock
from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import APIS, Context
from headrace.config import BROKER_ROWS, Settings
from headrace.metadata import Topic
from headrace.metadata.planning import NewTopic
from headrace.protocol.api import RESPONSES
from headrace.protocol.batch import build_batch
from headrace.protocol.codec import decode, encode
from headrace.protocol.records import Record
from headrace.protocol.schema import Message
from headrace.storage import FileSystem, Origin

ResponseT = TypeVar("ResponseT", bound=Message)


class Asker:
    """A client of one broker that needs no connection."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def ask(
        self, request: Message, response: type[ResponseT], version: int | None = None
    ) -> ResponseT:
        """Send a request in a version (the newest by default) and return the answer."""
        api = APIS[request.API_KEY]
        assert RESPONSES[request.API_KEY] is response
        version = api.version_max if version is None else version
        assert api.version_min <= version <= api.version_max
        # As in a receive buffer, records may be written to where they lie.
        received = decode(type(request), version, bytearray(encode(request, version)))
        answer = api.function(self.node, Context(request.API_KEY, version, "test"), received)
        if isinstance(answer, Pending):
            resolved: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
            answer.on_resolved(lambda pending: resolved.set_result(pending.response))
            answer = resolved
        if inspect.isawaitable(answer):
            answer = await answer
        return decode(response, version, encode(answer, version))

    async def create(self, name: str, partitions: int = 1, **config: str) -> Topic:
        """Make a topic; settings are given with `_` for `.`."""
        settings: dict[str, str | None] = {k.replace("_", "."): v for k, v in config.items()}
        (made,) = await self.node.topics.create([NewTopic(name, partitions, config=settings)])
        assert isinstance(made, Topic), made
        return made

    async def produce(self, topic: str, partition: int, *values: bytes) -> None:
        """Append records and wait until they are durable."""
        records = [Record(n, 0, b"k", value, ()) for n, value in enumerate(values)]
        served = self.node.partitions.get(topic, partition)
        assert served is not None
        batch = memoryview(build_batch(records))
        served.append(batch, self.node.clock.now_ms(), Origin.COORDINATOR)
        await served.durable_end()


def with_broker(
    folder: Path,
    scenario: Callable[[Asker], Awaitable[None]],
    settings: dict[str, object] | None = None,
    *,
    clock: Clock | None = None,
    files: FileSystem | None = None,
) -> None:
    """Start a broker on a folder, run the scenario, stop the broker."""

    async def run() -> None:
        given = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
        parsed = Settings.parse(BROKER_ROWS, given | (settings or {}))
        async with Broker(parsed, clock=clock, files=files) as broker:
            await scenario(Asker(broker.node))

    asyncio.run(asyncio.wait_for(run(), WAIT_SECONDS))
