"""Read, change, write, once: python examples/producer_transaction.py [HOST:PORT]."""

from __future__ import annotations

import sys

from headrace.client import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with Producer(bootstrap) as source:
    for number in range(3):
        source.send("raw", str(number))

with (
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "doubler-1"}) as producer,
    Consumer(
        {"bootstrap.servers": bootstrap, "enable.auto.commit": False},
        group="doubler",
        start="earliest",
    ) as consumer,
):
    producer.init_transactions()
    consumer.subscribe("raw")
    done = 0
    while done < 3:
        records = consumer.poll_batch(100)
        if not records:
            continue
        producer.begin()
        for record in records:
            producer.send("doubled", str(2 * int(record.value())))
        producer.send_offsets(consumer.position(), consumer.group_metadata())
        producer.commit()
        done += len(records)
    print(consumer.committed([("raw", 0)]))
