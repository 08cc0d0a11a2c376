"""Real producers and readers that write down what they were told."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.checker import Operation, Placed

DELIVERY_SECONDS = 120
UNKNOWN = -1
READ_SECONDS = 60


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


class IdempotentProducer:
    """One confluent-kafka producer, acks=all; the values of a partition are counted up.

    The value of the n-th record to a partition is `PROCESS:n`, its offset is noted when told.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, process: int):
        self.topic = topic
        self.process = process
        self.offsets = [array("q") for _ in range(partitions)]
        self.acknowledged = 0
        self.fatal: Exception | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
                "queue.buffering.max.messages": 20_000,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        """Queue this many records to each partition; waits while the queue is full."""
        for _ in range(count):
            for partition, offsets in enumerate(self.offsets):
                number = len(offsets)
                offsets.append(UNKNOWN)
                value = b"%d:%d" % (self.process, number)
                while True:
                    try:
                        self._producer.produce(
                            self.topic,
                            value,
                            partition=partition,
                            on_delivery=self._noting(partition, number),
                        )
                        break
                    except BufferError:
                        self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> int:
        """Wait for all answers; how many records have none."""
        left: int = self._producer.flush(DELIVERY_SECONDS)
        return left

    def operations(self) -> list[Operation]:
        history = []
        for partition, offsets in enumerate(self.offsets):
            key = f"{self.topic}-{partition}"
            sent: list[Placed] = []
            maybe: list[Placed] = []
            for number, offset in enumerate(offsets):
                value = f"{self.process}:{number}"
                if offset == UNKNOWN:
                    maybe.append((None, value))
                else:
                    sent.append((offset, value))
            history.append(Operation(self.process, "send", key, sent))
            history.append(Operation(self.process, "maybe", key, maybe))
        return history

    def _noting(self, partition: int, number: int) -> Any:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self.offsets[partition][number] = message.offset()
                self.acknowledged += 1

        return note

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal = KafkaException(error)


def read_topic(bootstrap: str, topic: str, partitions: int, process: int) -> list[Operation]:
    """Everything in a topic, as a fresh reader finds it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"final-{topic}-{process}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    history = []
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition, 0)
            low, high = consumer.get_watermark_offsets(place, timeout=READ_SECONDS)
            assert low == 0
            consumer.assign([place])
            rows: list[Placed] = []
            position = 0
            deadline_s = time.monotonic() + READ_SECONDS
            while position < high:
                # A call waits for as many as it asks for, or for its time to pass.
                messages = consumer.consume(min(10_000, high - position), timeout=1.0)
                if messages:
                    rows += _placed(messages)
                    position = messages[-1].offset() + 1
                    deadline_s = time.monotonic() + READ_SECONDS
                assert time.monotonic() < deadline_s, f"{topic}-{partition} stops at {position}"
            history.append(Operation(process, "final", f"{topic}-{partition}", rows))
    finally:
        consumer.close()
    return history


class Reader(threading.Thread):
    """Reads a topic all the time while things happen, and notes each poll."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, process: int):
        super().__init__(daemon=True)
        self.topic = topic
        self.process = process
        self.history: list[Operation] = []
        self._stop_asked = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{topic}-{process}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._stop_asked.is_set():
            by_partition: dict[int, list[Any]] = {}
            for message in self._consumer.consume(2_000, timeout=0.1):
                if message.error() is None:
                    by_partition.setdefault(message.partition(), []).append(message)
            for partition, messages in by_partition.items():
                key = f"{self.topic}-{partition}"
                self.history.append(Operation(self.process, "poll", key, _placed(messages)))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        self._consumer.close()


def _placed(messages: Sequence[Any]) -> list[Placed]:
    rows: list[Placed] = []
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
        rows.append((message.offset(), message.value().decode()))
    return rows
