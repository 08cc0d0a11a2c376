"""A loop on aiokafka, the client in pure asyncio."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer

from benchmarks.rivals.work import FETCH_WAIT_MS, Load, Meter, decode_order, given


async def consume(load: Load, meter: Meter) -> None:
    consumer = AIOKafkaConsumer(
        load.topic,
        bootstrap_servers=load.bootstrap,
        group_id=load.group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    await consumer.start()
    try:
        async for message in consumer:
            decode_order(message.value)
            if meter.count():
                break
    finally:
        await consumer.stop()


def main() -> None:
    load = given()
    meter = Meter(load)
    asyncio.run(consume(load, meter))
    meter.tell()


if __name__ == "__main__":
    main()
