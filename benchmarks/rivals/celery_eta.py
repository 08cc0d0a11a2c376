"""Celery on Redis with ETA: the worker's task, and a flow of tasks that are due later."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

import redis
from celery import Celery

app = Celery("headrace-bench")
# What a task that must not be lost is told: acknowledged when it is done, and seen by one worker.
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=0,
    broker_transport_options={"visibility_timeout": 86_400},
)

LATE = "bench:late"
TICK_SECONDS = 0.01


def note(due_ms: int, _padding: str, url: str) -> None:
    """Note how late it is."""
    late_ms = time.time_ns() // 1_000_000 - due_ms
    _connection(url).rpush(LATE, late_ms)


note_task = app.task(name="note")(note)

_connections: dict[str, Any] = {}


def _connection(url: str) -> Any:
    if url not in _connections:
        _connections[url] = redis.Redis.from_url(url)
    return _connections[url]


def send(
    url: str, broker: str, per_second: int, messages: int, delay_ms: int, value_bytes: int
) -> None:
    """Send evenly, as fast as the rate or the client allows."""
    app.conf.broker_url = broker
    padding = "x" * value_bytes
    begun, sent = time.monotonic(), 0
    with app.producer_pool.acquire() as producer:
        while sent < messages:
            due = min(messages, int((time.monotonic() - begun) * per_second))
            for _ in range(sent, due):
                at_ms = time.time_ns() // 1_000_000 + delay_ms
                eta = datetime.fromtimestamp(at_ms / 1000, UTC)
                note_task.apply_async((at_ms, padding, url), eta=eta, producer=producer)
            sent = due
            time.sleep(TICK_SECONDS)


def main() -> None:
    """Send a flow and wait for it; one line of JSON at the end."""
    flow = json.loads(sys.argv[1])
    connection = _connection(flow["url"])
    connection.delete(LATE)
    messages = round(flow["per_second"] * flow["seconds"])
    addresses = flow["url"], flow["broker"]
    send(*addresses, flow["per_second"], messages, flow["delay_ms"], flow["value_bytes"])
    sent_s = time.monotonic()
    give_up_at = sent_s + flow["delay_ms"] / 1000 + flow["patience_s"]
    while flow["patience_s"] and connection.llen(LATE) < messages and time.monotonic() < give_up_at:
        time.sleep(0.1)
    late_ms = sorted(int(late) for late in connection.lrange(LATE, 0, -1))
    count = len(late_ms)
    print(
        json.dumps(
            {
                "sent": messages,
                "received": count,
                "late_p50_ms": late_ms[count // 2] if count else None,
                "late_p99_ms": late_ms[count * 99 // 100] if count else None,
            }
        )
    )


if __name__ == "__main__":
    main()
