"""What a user would write on Kafka itself: a consumer group, or a share group (KIP-932)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.rivals.dispatch_work import given, tell, work

_WAIT_SECONDS = 900.0


def plain(told: dict[str, Any], ready: threading.Semaphore) -> Callable[[], Iterable[Any]]:
    """A member of a consumer group, which takes one record at a time."""
    consumer = Consumer(
        {
            "bootstrap.servers": told["bootstrap"],
            "group.id": "plain",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([told["topic"]], on_assign=lambda *_: ready.release())

    def poll() -> Iterable[Any]:
        message = consumer.poll(0.2)
        return [] if message is None else [message]

    return poll


def share(told: dict[str, Any], ready: threading.Semaphore) -> Callable[[], Iterable[Any]]:
    """A member of a share group; the broker deals records out to all members of a partition."""
    from confluent_kafka import ShareConsumer

    consumer = ShareConsumer(
        {
            "bootstrap.servers": told["bootstrap"],
            "group.id": "share",
            # Records taken at once are another worker's loss.
            "max.poll.records": 1,
            "log_level": 0,
        }
    )
    consumer.subscribe([told["topic"]])
    ready.release()
    return lambda: consumer.poll(0.2)


def begin_at_the_oldest(told: dict[str, Any]) -> None:
    """Have the share group begin with the first record, as a group's own setting says."""
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ResourceType.GROUP, "share", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": told["bootstrap"], "log_level": 0})
    for answer in admin.incremental_alter_configs([group]).values():
        answer.result(_WAIT_SECONDS)


def main() -> None:
    """Members in threads, records dealt out round robin, and the time until all are done."""
    told = given()
    jobs: list[float] = told["jobs"]
    workers: int = told["workers"]
    left = len(jobs)
    lock = threading.Lock()
    over = threading.Event()
    ready = threading.Semaphore(0)

    def member() -> None:
        nonlocal left
        poll = share(told, ready) if told["mode"] == "share" else plain(told, ready)
        while not over.is_set():
            for message in poll():
                if message.error() is None and message.value() != b"warm":
                    work(json.loads(message.value()))
                    with lock:
                        left -= 1
                        if not left:
                            over.set()

    if told["mode"] == "share":
        begin_at_the_oldest(told)
    threads = [threading.Thread(target=member, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
        # One after the other: the last rebalance has then given each its partition.
        ready.acquire()
    time.sleep(told["settle_s"])
    producer = Producer({"bootstrap.servers": told["bootstrap"], "linger.ms": 0, "log_level": 0})
    begun_s = time.monotonic()
    for number, duration in enumerate(jobs):
        producer.produce(told["topic"], json.dumps(duration), partition=number % workers)
        producer.poll(0)
    producer.flush()
    if not over.wait(_WAIT_SECONDS):
        raise TimeoutError(f"{left} jobs were not done")
    tell({"seconds": time.monotonic() - begun_s})


if __name__ == "__main__":
    main()
