"""Celery on Redis: the worker's task, and a program that sends tasks and waits for them."""

from __future__ import annotations

import time

import redis
from celery import Celery

from benchmarks.rivals.dispatch_work import DONE, await_done, given, tell, work

app = Celery("headrace-bench")
# What a task that must not be lost is told; and no worker hoards tasks that another could run.
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1)

_connections: dict[str, redis.Redis] = {}


def run(duration_ms: float, url: str) -> None:
    """Work, and count."""
    work(duration_ms)
    if url not in _connections:
        _connections[url] = redis.Redis.from_url(url)
    _connections[url].incr(DONE)


job = app.task(name="job")(run)


def main() -> None:
    told = given()
    app.conf.broker_url = told["broker"]
    connection = redis.Redis.from_url(told["url"])
    for jobs in ([0.0] * told["warm"], told["jobs"]):
        connection.delete(DONE)
        begun_s = time.monotonic()
        with app.producer_pool.acquire() as producer:
            for duration in jobs:
                job.apply_async((duration, told["url"]), producer=producer)
        await_done(connection, len(jobs))
    tell({"seconds": time.monotonic() - begun_s})


if __name__ == "__main__":
    main()
