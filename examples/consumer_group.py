"""A member of a group: python examples/consumer_group.py [HOST:PORT]."""

from __future__ import annotations

import sys
from typing import Any

from headrace.client import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with Producer(bootstrap) as producer:
    for number in range(3):
        producer.send("parcels", f"parcel {number}")


def given(partitions: list[Any]) -> None:
    print("given", [(it.topic, it.partition, it.offset) for it in partitions])


with Consumer(
    {"bootstrap.servers": bootstrap, "partition.assignment.strategy": "sticky"},
    group="couriers",
    start="earliest",
) as consumer:
    consumer.subscribe("parcels", on_assign=given, on_revoke=lambda it: print("taken", len(it)))
    read = 0
    while read < 3:
        for record in consumer.poll_batch(100):
            print(record.value().decode())
            read += 1
# Leaving the `with` has committed what was read: auto commit is on by default.
