"""The topics of orders that the rivals consume, and the time that their work takes at best."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.rivals.work import Order

_NOTE = "x" * 80
_ADMIN_SECONDS = 30.0
_FLUSH_SECONDS = 120.0


@dataclass(frozen=True)
class Orders:
    """So many orders over keys and partitions; `work_us_max` and how many orders have work."""

    topic: str
    count: int
    partitions: int
    keys: int
    work_us_max: int = 0
    # One order in so many has work, all of them on one key: a hot key in a quick stream.
    hot_every: int = 0

    def __iter__(self) -> Iterator[tuple[bytes, Order]]:
        """Key and order; the same ones each time."""
        chance = random.Random(self.topic)
        for number in range(self.count):
            key, work_us = number % self.keys, 0
            if self.hot_every:
                if number % self.hot_every == 0:
                    key, work_us = 0, self.work_us_max
            elif self.work_us_max:
                key, work_us = chance.randrange(self.keys), chance.randint(0, self.work_us_max)
            yield b"k%d" % key, Order(number, f"customer-{key}", number % 1000, work_us, _NOTE)

    def ideal_s(self) -> float:
        """The least time that the work takes when every key is one thing at a time."""
        by_key: dict[bytes, int] = defaultdict(int)
        for key, order in self:
            by_key[key] += order.work_us
        return max(by_key.values()) / 1e6

    def fill(self, bootstrap: str) -> None:
        """Make the topic and put the orders there."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(self.topic, self.partitions, 1)])
        made[self.topic].result(_ADMIN_SECONDS)
        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 200_000,
                "log_level": 0,
            }
        )

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        encode = msgspec.json.encode
        for key, order in self:
            while True:
                try:
                    producer.produce(self.topic, encode(order), key, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        left = producer.flush(_FLUSH_SECONDS)
        if failures or left:
            raise KafkaException(failures[0] if failures else f"{left} orders were not taken")
