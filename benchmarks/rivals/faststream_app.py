"""FastStream on confluent-kafka, with its msgspec serialiser."""

from __future__ import annotations

import asyncio
import logging

from fast_depends.msgspec import MsgSpecSerializer
from faststream.confluent import KafkaBroker

from benchmarks.rivals.work import FETCH_WAIT_MS, Load, Meter, Order, given, sleep_s

_WORKERS = 64


async def consume(load: Load, meter: Meter) -> None:
    broker = KafkaBroker(
        load.bootstrap, serializer=MsgSpecSerializer(), logger=None, log_level=logging.ERROR
    )
    sleeps = load.work == "sleep"

    # Workers keep no order by key: FastStream has nothing that does.
    @broker.subscriber(
        load.topic,
        group_id=load.group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_workers=_WORKERS if sleeps else None,
    )
    async def handle(order: Order) -> None:
        if sleeps:
            await asyncio.sleep(sleep_s(order))
        meter.count()

    async with broker:
        await broker.start()
        await asyncio.to_thread(meter.wait)


def main() -> None:
    load = given()
    meter = Meter(load)
    asyncio.run(consume(load, meter))
    meter.tell()


if __name__ == "__main__":
    main()
