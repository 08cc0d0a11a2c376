"""A flow of delayed messages by stock clients: `python -m benchmarks.rivals.delay_flow '{...}'`.

Sends at a rate, each message to be delivered after a while, and measures when a reader of what is
committed gets it. The value begins with the due time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

TICK_SECONDS = 0.01
METADATA_SECONDS = 20.0


@dataclass(frozen=True)
class Flow:
    """What is sent: so many a second for so long, each delivered so much later."""

    bootstrap: str
    topic: str
    per_second: int
    seconds: float
    delay_ms: int
    value_bytes: int = 1_000
    # How long after the last due time the reader waits for the rest.
    patience_s: float = 60.0

    @property
    def messages(self) -> int:
        return round(self.per_second * self.seconds)


def send(flow: Flow) -> None:
    """Send evenly; what the machine cannot keep up with is sent as soon as it can."""
    producer = Producer(
        {
            "bootstrap.servers": flow.bootstrap,
            "log_level": 0,
            "linger.ms": 5,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    padding = b"x" * (flow.value_bytes - 14)
    run = f"{time.time_ns():x}"
    begun = time.monotonic()
    sent = 0
    while sent < flow.messages:
        now = time.monotonic()
        due = min(flow.messages, int((now - begun) * flow.per_second))
        for number in range(sent, due):
            at_ms = time.time_ns() // 1_000_000 + flow.delay_ms
            headers = [
                ("headrace-target", flow.topic),
                ("headrace-id", f"{run}-{number}"),
                ("headrace-deliver-at", str(at_ms)),
            ]
            producer.produce("headrace.delay", b"%013d " % at_ms + padding, headers=headers)
        sent = due
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    producer.flush()


def receive(flow: Flow) -> dict[str, Any]:
    """Read all that was sent; how late each was, and when they came."""
    consumer = Consumer(
        {
            "bootstrap.servers": flow.bootstrap,
            "log_level": 0,
            "group.id": "delay-flow",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    partitions = consumer.list_topics(flow.topic, METADATA_SECONDS).topics[flow.topic].partitions
    consumer.assign([TopicPartition(flow.topic, number, OFFSET_BEGINNING) for number in partitions])
    late_ms: list[int] = []
    first_s = last_s = time.monotonic()
    give_up_at = last_s + flow.delay_ms / 1000 + flow.seconds + flow.patience_s
    while len(late_ms) < flow.messages and time.monotonic() < give_up_at:
        records = consumer.consume(10_000, 0.005)
        now_ms, last_s = time.time_ns() // 1_000_000, time.monotonic()
        if not late_ms:
            first_s = last_s
        late_ms += [now_ms - int(record.value()[:13]) for record in records]
    consumer.close()
    late_ms.sort()
    count = len(late_ms)
    return {
        "sent": flow.messages,
        "received": count,
        "early": sum(1 for late in late_ms if late < 0),
        "late_p50_ms": late_ms[count // 2] if count else None,
        "late_p99_ms": late_ms[count * 99 // 100] if count else None,
        "late_max_ms": late_ms[-1] if count else None,
        "per_second": count / max(0.001, last_s - first_s),
    }


def main() -> None:
    """Send and receive at the same time; one line of JSON at the end."""
    flow = Flow(**json.loads(sys.argv[1]))
    sending = threading.Thread(target=send, args=(flow,), daemon=True)
    sending.start()
    answer = receive(flow)
    sending.join()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
