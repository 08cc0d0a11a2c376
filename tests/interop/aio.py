"""How aiokafka is driven in its tests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from tests.interop.cases import Task

T = TypeVar("T")

SECONDS_MAX = 60.0


def settings(task: Task) -> dict[str, Any]:
    """A consumer of the case's group that commits nothing by itself."""
    return {
        "bootstrap_servers": task.bootstrap,
        "group_id": task.topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }


@asynccontextmanager
async def consuming(task: Task, **more: Any) -> AsyncIterator[Any]:
    async with AIOKafkaConsumer(**settings(task), **more) as consumer:
        yield consumer


@asynccontextmanager
async def producing(task: Task, **more: Any) -> AsyncIterator[Any]:
    async with AIOKafkaProducer(bootstrap_servers=task.bootstrap, **more) as producer:
        yield producer


@asynccontextmanager
async def administering(task: Task) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=task.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def settled(ask: Callable[[], Awaitable[T]], wanted: T) -> T:
    """Ask until the answer is the wanted one, as `cases.settled` does."""
    deadline = time.monotonic() + SECONDS_MAX / 2
    while (answer := await ask()) != wanted and time.monotonic() < deadline:
        pass
    return answer
