"""Without a group: by topic, by partition, from anywhere: python examples/consumer_alone.py."""

from __future__ import annotations

import sys

from headrace.client import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with Producer(bootstrap) as producer:
    for number in range(5):
        producer.send("readings", f"r{number}", partition=0)


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [record.value().decode() for record in consumer.poll_batch(count - len(found))]
    return found


with Consumer(bootstrap, start="earliest") as consumer:
    consumer.assign("readings")  # the whole topic, and partitions that it gets later
    print(read(consumer, 5))
    consumer.assign([("readings", 0, 3)])  # one partition, from an offset
    print(read(consumer, 2))
    consumer.seek("readings", 0, "1h")  # what came within the last hour
    print(read(consumer, 1))
    consumer.pause([("readings", 0)])
    print("paused:", consumer.poll_batch(10, 0.2))
