"""Write and read with a stock Kafka client: python examples/produce_consume.py [HOST:PORT]."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": bootstrap})
for number in range(3):
    producer.produce("greetings", key=f"k{number}", value=f"hello {number}")
producer.flush()

consumer = Consumer(
    {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["greetings"])
for _ in range(3):
    message = consumer.poll(30)
    if message is None:
        sys.exit("no message came within 30 seconds")
    print(message.key().decode(), message.value().decode())
consumer.close()
