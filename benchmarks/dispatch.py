"""`headrace bench dispatch`: work to whoever is idle, beside groups, Celery and RQ."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.redis_server import RedisServer

from benchmarks import report
from benchmarks.asking import ROOT, BenchFailed, ask
from benchmarks.columns import OWN, ColumnsBench
from benchmarks.figures import Figure, Target, bounded
from benchmarks.peers import Headrace, Kafka, Peer
from benchmarks.rivals.dispatch_work import durations_ms, greedy_s

COLUMNS = {
    "headrace": "Headrace",
    "plain": "consumer group",
    "share": "share group",
    "celery": "Celery",
    "rq": "RQ",
}
WORKERS = 8
JOBS, JOBS_QUICK = 2_000, 200
# Empty jobs, by who runs them: each for some seconds.
EMPTY = {"headrace": 20_000, "celery": 4_000, "rq": 2_000}
EMPTY_PARTITIONS = 64
ALONE, ALONE_QUICK = 500, 100
WARM = 500
# Redis counts its calls by command; these are the dispatcher's.
TOKEN_COMMANDS = ("evalsha", "eval", "blmpop", "blpop")
SETTLE_SECONDS = 3.0
# Members of a share group hear of their partitions with a heartbeat, every five seconds.
SHARE_SETTLE_SECONDS = 10.0
_WAIT_SECONDS = 900.0

FIGURES = (
    bounded("makespan", "heavy-tailed jobs, 8 workers: times the ideal", "x", 1.05),
    bounded("seconds", "  makespan", "s"),
    Figure("rate", "empty jobs", "jobs/s", "higher", Target(3_000, relative=False)),
    bounded("calls", "  calls of Redis for one", "calls", 3),
    bounded("running-p50", "one job, all idle: submitted to running, p50", "ms"),
    bounded("running-p99", "  p99", "ms", 10),
)
_COLOURS = {OWN: "#2a7f62"}
_OTHER = "#7a9cc6"

Told = dict[str, Any]


class DispatchBench(ColumnsBench):
    """The same jobs by one rival after the other."""

    name = "dispatch"
    description = "Run the same jobs by the dispatcher, by groups of Kafka, Celery and RQ."
    picture = "Makespan by rival"
    columns = COLUMNS
    figures = FIGURES
    title = "Jobs"

    def __init__(self) -> None:
        super().__init__()
        self.details["ideal_s"] = greedy_s(durations_ms(JOBS), WORKERS)

    def measure(self, column: str, folder: Path, quick: bool, progress: Console) -> None:
        """Run the jobs by one rival; one that cannot run here is left out."""
        jobs = durations_ms(JOBS_QUICK if quick else JOBS)
        self.details["ideal_s"] = greedy_s(jobs, WORKERS)
        try:
            self._measure(column, folder, jobs, quick)
        except (BenchFailed, KafkaException, ImportError) as error:
            if column == OWN:
                raise
            self.left_out[column] = str(error).strip().splitlines()[-1]
            return
        values = self.values[column]
        values["makespan"] = values["seconds"] / self.details["ideal_s"]

    def note(self) -> str:
        """What the ideal is."""
        return (
            f"The ideal, which gives the next job to whoever is idle first, takes "
            f"{self.details['ideal_s']:.1f} s; another order of the jobs may take less."
        )

    def draw(self, rows: Mapping[str, Mapping[str, float | None]], axes: Any) -> None:
        """Bars of the makespan, with a line at the ideal."""
        seconds = {name: value for name, value in rows["seconds"].items() if value is not None}
        shown = list(seconds)[::-1]
        for at, name in enumerate(shown):
            axes.barh(at, seconds[name], height=0.6, color=_COLOURS.get(name, _OTHER))
            axes.text(
                seconds[name], at, f" {report.number(seconds[name])} s", va="center", fontsize=8
            )
        axes.axvline(self.details["ideal_s"], color="#b03a3a", linewidth=1, label="the ideal")
        axes.set_yticks(range(len(shown)), [COLUMNS[name] for name in shown])
        axes.set_xlabel("seconds until 2,000 heavy-tailed jobs are done by 8 workers")

    def _measure(self, column: str, folder: Path, jobs: list[float], quick: bool) -> None:
        values = self.values[column]
        if column == "headrace":
            self._headrace(folder, jobs, quick)
        elif column in ("plain", "share"):
            # Headrace's own broker has no share groups.
            peer: Peer = Kafka() if column == "share" else Headrace()
            with _broker(peer, folder) as bootstrap:
                _make_topic(bootstrap, "work", WORKERS)
                told: Told = {"bootstrap": bootstrap, "topic": "work", "mode": column}
                told |= {"jobs": jobs, "workers": WORKERS}
                told["settle_s"] = SHARE_SETTLE_SECONDS if column == "share" else SETTLE_SECONDS
                values["seconds"] = ask("dispatch_group", told)["seconds"]
        else:
            empty = EMPTY[column] // (10 if quick else 1)
            with RedisServer() as server, _workers(column, server, folder):
                told = {"url": server.url, "broker": _celery_url(server), "mode": "submit"}
                told["warm"] = WARM // 5
                values["seconds"] = ask(f"dispatch_{column}", {**told, "jobs": jobs})["seconds"]
                answer = ask(f"dispatch_{column}", {**told, "jobs": [0.0] * empty})
                values["rate"] = empty / answer["seconds"]

    def _headrace(self, folder: Path, jobs: list[float], quick: bool) -> None:
        values = self.values["headrace"]
        with _broker(Headrace(), folder) as bootstrap, RedisServer() as server:
            told: Told = {"bootstrap": bootstrap, "tokens": server.url, "warm": WARM}
            told["spool"] = str(folder / "submit.spool")
            work = {**told, "topic": "work", "partitions": WORKERS}
            with _nodes(work, folder, 2):
                answer = ask("dispatch_node", {**work, "mode": "all", "jobs": jobs})
                values["seconds"] = answer["seconds"]
                alone = [0.0] * (ALONE_QUICK if quick else ALONE)
                answer = ask("dispatch_node", {**work, "mode": "one", "jobs": alone})
                found = answer["to_running_ms"]
                values["running-p50"] = found[len(found) // 2]
                values["running-p99"] = found[len(found) * 99 // 100]
            count = EMPTY["headrace"] // (10 if quick else 1)
            empty = {**told, "topic": "empty", "partitions": EMPTY_PARTITIONS}
            with _nodes(empty, folder, 1):
                calls = _calls(server)
                answer = ask("dispatch_node", {**empty, "mode": "all", "jobs": [0.0] * count})
                values["rate"] = count / answer["seconds"]
                values["calls"] = (_calls(server) - calls) / (count + WARM)


@contextmanager
def _broker(peer: Peer, folder: Path) -> Iterator[str]:
    """A broker that answers."""
    running = peer.start(folder / "broker")
    try:
        deadline_s = time.monotonic() + 60
        while True:
            admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
            try:
                admin.list_topics(timeout=5)
                break
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)
        yield running.bootstrap
    finally:
        peer.stop()


def _make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


@contextmanager
def _nodes(told: Told, folder: Path, count: int) -> Iterator[None]:
    """Working nodes that share the partitions."""
    with ExitStack() as stack:
        for number in range(count):
            own = {**told, "mode": "work", "spool": str(folder / f"{told['topic']}-{number}.spool")}
            process = stack.enter_context(_process("dispatch_node", own))
            assert process.stdout is not None
            if not process.stdout.readline():
                raise BenchFailed("a node did not start")
        time.sleep(SETTLE_SECONDS)
        yield


@contextmanager
def _workers(column: str, server: RedisServer, folder: Path) -> Iterator[None]:
    """Eight workers of Celery or RQ."""
    with ExitStack() as stack:
        if column == "rq":
            for _ in range(WORKERS):
                stack.enter_context(_process("dispatch_rq", {"url": server.url, "mode": "work"}))
        else:
            stack.enter_context(_celery(_celery_url(server), folder / "celery.log"))
        yield


@contextmanager
def _celery(url: str, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.rivals.dispatch_celery", "-b", url]
    command += ["worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    command += ["--pool", "threads", "--concurrency", str(WORKERS)]
    with log.open("wb") as words:
        worker = subprocess.Popen(command, cwd=ROOT, stdout=words, stderr=words)
    try:
        deadline_s = time.monotonic() + 60
        while b" ready." not in log.read_bytes():
            if worker.poll() is not None or time.monotonic() > deadline_s:
                raise BenchFailed(log.read_text()[-2000:])
            time.sleep(0.1)
        yield
    finally:
        worker.kill()
        worker.wait()


@contextmanager
def _process(module: str, told: Told) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", f"benchmarks.rivals.{module}", json.dumps(told)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _celery_url(server: RedisServer) -> str:
    # As kombu calls a socket of Redis.
    return server.url.replace("unix://", "redis+socket://")


def _calls(server: RedisServer) -> int:
    """How often clients have called the server for tokens."""
    with redis.Redis.from_url(server.url) as client:
        found: dict[str, Any] = client.info("commandstats")
    return sum(
        int(found[f"cmdstat_{name}"]["calls"])
        for name in TOKEN_COMMANDS
        if f"cmdstat_{name}" in found
    )


BENCH = DispatchBench()
