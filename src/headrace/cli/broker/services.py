"""The services of `headrace up`: a process for each, started when it is first needed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from headrace.config import Settings, environment

if TYPE_CHECKING:
    from headrace.broker import Broker

# A service starts once its topic exists; the first sender or group creates it.
TOPICS = {"delay": "headrace.delay", "half": "headrace.half", "lag": "__consumer_offsets"}
LOOK_SECONDS = 0.25
# A service that exits by itself is restarted, after a pause that doubles.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
# After a run of this length the pause starts over.
GOOD_SECONDS = 60.0
STOP_SECONDS = 15.0

log = logging.getLogger(__name__)


async def run_services(broker: Broker, settings: Settings, address: str) -> None:
    """Start services as they are needed, until cancelled; then stop them, before the broker."""
    wanted = settings.list("headrace.services")
    async with asyncio.TaskGroup() as group:
        for name in wanted:
            group.create_task(_run(name, broker, address))


async def _run(name: str, broker: Broker, address: str) -> None:
    pause_s = PAUSE_SECONDS
    clock = asyncio.get_running_loop()
    while not _is_needed(name, broker):
        await asyncio.sleep(LOOK_SECONDS)
    while True:
        began = clock.time()
        try:
            status = await _run_once(name, address)
            log.warning("the %s service exited with %d and is restarted", name, status)
        except OSError as error:
            log.warning("the %s service cannot be started now: %s", name, error)
        if clock.time() - began > GOOD_SECONDS:
            pause_s = PAUSE_SECONDS
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)


async def _run_once(name: str, address: str) -> int:
    # In a process of its own: a busy thread beside the broker's loop would slow it down.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "headrace", "service", name, "--bootstrap", address),
        *("--parent", str(os.getpid())),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        # Ctrl-C goes to this process, which stops the services in order.
        start_new_session=True,
    )
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise


def _is_needed(name: str, broker: Broker) -> bool:
    if name in TOPICS:
        return TOPICS[name] in broker.node.catalog.topics
    return environment.store_url() is not None


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
