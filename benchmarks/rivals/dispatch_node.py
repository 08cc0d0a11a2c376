"""Headrace's dispatcher: a node that works, or one that submits and measures."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.rivals.dispatch_work import given, tell
from headrace.dispatch import Dispatcher

_WAIT_SECONDS = 900.0


def make(told: dict[str, Any]) -> Dispatcher:
    return Dispatcher(
        told["bootstrap"],
        topic=told["topic"],
        tokens=told["tokens"],
        spool=told["spool"],
        partitions=told["partitions"],
        settings={"log_level": 0},
    )


def run_worker(told: dict[str, Any]) -> None:
    """Run jobs until the bench ends this process."""
    dispatcher = make(told)

    @dispatcher.worker
    async def work(duration_ms: float) -> int:
        begun_ns = time.monotonic_ns()
        if duration_ms:
            await asyncio.sleep(duration_ms / 1000)
        return begun_ns

    dispatcher.start()
    dispatcher.wait_ready(_WAIT_SECONDS)
    tell({"ready": True})
    asyncio.run(asyncio.sleep(_WAIT_SECONDS))


async def submit(told: dict[str, Any]) -> None:
    """Submit all jobs at once, or one after the other, and wait for them."""
    dispatcher = make(told)
    await asyncio.to_thread(dispatcher.start, work=False)
    for handle in await dispatcher.submit_all([0.0] * told["warm"]):
        await handle
    if told["mode"] == "one":
        to_running_ms = []
        for duration in told["jobs"]:
            begun_ns = time.monotonic_ns()
            handle = await dispatcher.submit(duration)
            to_running_ms.append((await handle - begun_ns) / 1e6)
        tell({"to_running_ms": sorted(to_running_ms)})
    else:
        begun_s = time.monotonic()
        for handle in await dispatcher.submit_all(told["jobs"]):
            await handle
        tell({"seconds": time.monotonic() - begun_s})
    await asyncio.to_thread(dispatcher.stop)


def main() -> None:
    told = given()
    if told["mode"] == "work":
        run_worker(told)
    else:
        asyncio.run(submit(told))


if __name__ == "__main__":
    main()
