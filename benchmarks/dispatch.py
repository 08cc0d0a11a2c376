"""`headrace bench dispatch`: work to whoever is idle, beside groups, Celery and RQ."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.redis_server import RedisServer

from benchmarks import dispatch_report, generator, machine, report
from benchmarks.figures import Figure, Row, Target, bounded
from benchmarks.peers import Headrace, Kafka, Peer
from benchmarks.rivals.dispatch_work import durations_ms, greedy_s

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
NAME = "dispatch"
PLOT = ROOT / "docs" / "img" / f"bench-{NAME}.svg"

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
Values = dict[str, float]
Told = dict[str, Any]


class BenchFailed(RuntimeError):
    """Something that is measured ended by itself; the text is its last words."""


class DispatchBench:
    """The same jobs by one rival after the other."""

    name = NAME

    def __init__(self) -> None:
        self.values: dict[str, Values] = {column: {} for column in COLUMNS}
        self.left_out: dict[str, str] = {}

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options of the bench."""
        parser = argparse.ArgumentParser(
            prog=f"headrace bench {NAME}",
            description="Run the same jobs by the dispatcher, by groups of Kafka, Celery and RQ.",
        )
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        parser.add_argument("--quick", action="store_true", help="a short look")
        parser.add_argument(
            "--only", action="append", choices=list(COLUMNS), help="only this; may be repeated"
        )
        parser.add_argument("--dir", type=Path, help="where the data goes (a cache folder)")
        parser.add_argument(
            "--write-docs", action="store_true", help="put the figures and the plot into docs/"
        )
        options = parser.parse_args(arguments)
        if options.write_docs and (options.quick or options.only):
            parser.error("--write-docs needs a full run")
        return options

    def run(self, options: argparse.Namespace, progress: Console) -> dict[str, Any]:
        """Measure what the options ask for; the whole document."""
        parent = options.dir or generator.CACHE / "data"
        parent.mkdir(parents=True, exist_ok=True)
        jobs = durations_ms(JOBS_QUICK if options.quick else JOBS)
        ideal_s = greedy_s(jobs, WORKERS)
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as temporary:
            folder = Path(temporary)
            facts = machine.facts(folder)
            for column in options.only or COLUMNS:
                progress.log(COLUMNS[column])
                own = folder / column
                own.mkdir()
                try:
                    self._measure(column, own, jobs, options.quick)
                except (BenchFailed, KafkaException, ImportError) as error:
                    if column == "headrace":
                        raise
                    self.left_out[column] = str(error).strip().splitlines()[-1]
                    continue
                values = self.values[column]
                values["makespan"] = values["seconds"] / ideal_s
                shown = {name: round(value, 2) for name, value in values.items()}
                progress.log(f"[dim]{shown}")
        return {
            "machine": facts,
            "figures": [self._row(figure) for figure in FIGURES],
            "ideal_s": ideal_s,
            "quick": options.quick,
            "left_out": self.left_out,
        }

    def _row(self, figure: Figure) -> dict[str, Any]:
        values = {column: found.get(figure.name) for column, found in self.values.items()}
        return {
            "name": figure.name,
            "title": figure.title,
            "unit": figure.unit,
            "values": values,
            "target": report.target_text(figure) or None,
            "reached": Row(figure, values["headrace"], None).reached,
        }

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
                values["seconds"] = _ask("dispatch_group", told)["seconds"]
        else:
            empty = EMPTY[column] // (10 if quick else 1)
            with RedisServer() as server, _workers(column, server, folder):
                told = {"url": server.url, "broker": _celery_url(server), "mode": "submit"}
                told["warm"] = WARM // 5
                values["seconds"] = _ask(f"dispatch_{column}", {**told, "jobs": jobs})["seconds"]
                answer = _ask(f"dispatch_{column}", {**told, "jobs": [0.0] * empty})
                values["rate"] = empty / answer["seconds"]

    def _headrace(self, folder: Path, jobs: list[float], quick: bool) -> None:
        values = self.values["headrace"]
        with _broker(Headrace(), folder) as bootstrap, RedisServer() as server:
            told: Told = {"bootstrap": bootstrap, "tokens": server.url, "warm": WARM}
            told["spool"] = str(folder / "submit.spool")
            work = {**told, "topic": "work", "partitions": WORKERS}
            with _nodes(work, folder, 2):
                answer = _ask("dispatch_node", {**work, "mode": "all", "jobs": jobs})
                values["seconds"] = answer["seconds"]
                alone = [0.0] * (ALONE_QUICK if quick else ALONE)
                answer = _ask("dispatch_node", {**work, "mode": "one", "jobs": alone})
                found = answer["to_running_ms"]
                values["running-p50"] = found[len(found) // 2]
                values["running-p99"] = found[len(found) * 99 // 100]
            count = EMPTY["headrace"] // (10 if quick else 1)
            empty = {**told, "topic": "empty", "partitions": EMPTY_PARTITIONS}
            with _nodes(empty, folder, 1):
                calls = _calls(server)
                answer = _ask("dispatch_node", {**empty, "mode": "all", "jobs": [0.0] * count})
                values["rate"] = count / answer["seconds"]
                values["calls"] = (_calls(server) - calls) / (count + WARM)

    def write_docs(self, result: dict[str, Any], command: str) -> None:
        """Put the figures into the docs page and draw the plot beside it."""
        generated = dispatch_report.markdown(NAME, result, COLUMNS, command)
        PAGE.write_text(report.insert(PAGE.read_text(), NAME, generated))
        dispatch_report.plot(result, COLUMNS, PLOT)

    def main(self, arguments: Sequence[str]) -> int:
        """Run the bench; 0 when it could be measured, whatever the figures say."""
        options = self.parse(arguments)
        progress = Console(stderr=True, log_path=False)
        try:
            result = self.run(options, progress)
        except BenchFailed as error:
            progress.print(f"[red]error:[/] {error}", soft_wrap=True)
            return 1
        if options.output == "json":
            print(json.dumps(result, indent=2))
        else:
            out = Console(width=None if sys.stdout.isatty() else 150)
            out.print(dispatch_report.table(result, COLUMNS))
            for column, why in self.left_out.items():
                out.print(f"left out: {COLUMNS[column]}: {why}")
        if options.write_docs:
            self.write_docs(result, " ".join([f"./headrace bench {NAME}", *arguments]))
        return 0


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


def _ask(module: str, told: Told) -> dict[str, Any]:
    """Run a program to its end; its answer is the last line that it prints."""
    command = [sys.executable, "-m", f"benchmarks.rivals.{module}", json.dumps(told)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_WAIT_SECONDS
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise BenchFailed(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


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
