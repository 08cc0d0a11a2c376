"""Four ways to send: python examples/producer_ways.py [HOST:PORT]."""

from __future__ import annotations

import asyncio
import sys

from headrace.client import Producer, RecordMetadata
from headrace.client.errors import DeliveryFailed

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


def tell(metadata: RecordMetadata | None, error: DeliveryFailed | None) -> None:
    print("called back:", "failed" if metadata is None else f"offset {metadata.offset}")


with Producer(bootstrap) as producer:
    producer.send("ways", "forgotten")  # failures are logged
    print("waited for: offset", producer.send_and_wait("ways", "waited for").offset)
    producer.send("ways", "called back", on_delivery=tell)
    producer.flush()

    async def main() -> None:
        sent = [producer.send("ways", f"awaited {number}") for number in range(3)]
        print("awaited: offsets", [(await one).offset for one in sent])

    asyncio.run(main())
