"""A wrong group id does not replay history: python examples/consumer_wrong_group.py [HOST:PORT]."""

from __future__ import annotations

import sys

from headrace.client import Consumer, Producer
from headrace.client.errors import UnknownGroupHistory

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
# A long history is a day or a million records; here it is ten, so that the example is short.
settings = {"bootstrap.servers": bootstrap, "headrace.history.records": 10}

with Producer(bootstrap) as producer:
    for number in range(20):
        producer.send("orders-of-years", str(number))

with Consumer(settings, group="biling") as consumer:
    consumer.subscribe("orders-of-years")
    try:
        while True:
            consumer.poll_batch(100)
    except UnknownGroupHistory as refusal:
        print(refusal)

with Consumer(settings, group="billing", start="earliest") as consumer:
    consumer.subscribe("orders-of-years")
    read = 0
    while read < 20:
        read += len(consumer.poll_batch(100))
    print("read", read)
