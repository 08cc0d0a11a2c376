"""pyrallel-consumer: lanes by key on asyncio; it needs Python 3.12."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.rivals.work import Load, Meter, decode_order, given, sleep_s


async def consume(load: Load, meter: Meter) -> None:
    # Imported by name: the package is not there on the Python that checks these types.
    package = import_module("pyrallel_consumer.consumer")
    config = import_module("pyrallel_consumer.config").KafkaConfig()
    config.BOOTSTRAP_SERVERS = [load.bootstrap]
    config.CONSUMER_GROUP = load.group
    config.parallel_consumer.ordering_mode = import_module("pyrallel_consumer.dto").OrderingMode(
        load.mode or "key_hash"
    )
    sleeps = load.work == "sleep"

    async def handle(item: Any) -> None:
        order = decode_order(item.payload)
        if sleeps:
            await asyncio.sleep(sleep_s(order))
        meter.count()

    consumer = package.PyrallelConsumer(config=config, worker=handle, topic=load.topic)
    await consumer.start()
    try:
        await asyncio.to_thread(meter.wait)
    finally:
        await consumer.stop()


def main() -> None:
    load = given()
    meter = Meter(load)
    asyncio.run(consume(load, meter))
    meter.tell()


if __name__ == "__main__":
    main()
