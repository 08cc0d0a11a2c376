"""RQ on Redis: one of its workers, or a program that enqueues jobs and waits for them."""

from __future__ import annotations

import time

import redis
from rq import Queue
from rq.worker import SimpleWorker

from benchmarks.rivals.dispatch_work import DONE, await_done, given, tell, work

QUEUE = "bench"
# Workers know a job's function by its place.
JOB = "benchmarks.rivals.dispatch_rq.job"

_connections: dict[str, redis.Redis] = {}


def job(duration_ms: float, url: str) -> None:
    """Work, and count."""
    work(duration_ms)
    if url not in _connections:
        _connections[url] = redis.Redis.from_url(url)
    _connections[url].incr(DONE)


def main() -> None:
    told = given()
    connection = redis.Redis.from_url(told["url"])
    queue = Queue(QUEUE, connection=connection)
    if told["mode"] == "work":
        # It runs jobs in its own process; the usual one forks for each, which takes longer still.
        SimpleWorker([queue], connection=connection).work(logging_level="ERROR")
        return
    for jobs in ([0.0] * told["warm"], told["jobs"]):
        connection.delete(DONE)
        begun_s = time.monotonic()
        for duration in jobs:
            queue.enqueue(JOB, duration, told["url"], result_ttl=0, job_timeout=3600)
        await_done(connection, len(jobs))
    tell({"seconds": time.monotonic() - begun_s})


if __name__ == "__main__":
    main()
