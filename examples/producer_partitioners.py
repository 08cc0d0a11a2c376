"""Who chooses the partition: python examples/producer_partitioners.py [HOST:PORT]."""

from __future__ import annotations

import sys

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import Producer
from headrace.client.partitioners import Partitioner, partition_of

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic("spread", 4)])["spread"].result(30)


def last(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    return partitions - 1


def send_four(partitioner: str | Partitioner) -> list[int]:
    with Producer(bootstrap, partitioner=partitioner) as producer:
        sent = [producer.send("spread", "v", key="customer-7") for _ in range(4)]
        return [one.result(30).partition for one in sent]


print("key:", send_four("key") == [partition_of(b"customer-7", 4)] * 4)
print("round robin:", send_four("round_robin"))
print("sticky:", len(set(send_four("sticky"))), "partition until a batch is full")
print("function:", send_four(last))
