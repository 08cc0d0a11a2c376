"""Pipelines under test: a driver process that is killed and comes back, and what it wrote."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.spark_pipelines import KEYS, SOURCE
from tests.spark.clusters import Cluster, quick

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
# Of a machine that has other things to do as well.
WAIT_SECONDS = 600.0
LOOK_SECONDS = 0.2
# So long after a batch was begun, at the most, something is killed.
PAUSE_SECONDS_MAX = 1.0
LOCAL = "local[2,4]"

# What the command line of each has in it.
_MARKS = {
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "executor": "CoarseGrainedExecutorBackend",
    "task": "pyspark.daemon",
}


class Broker(Protocol):
    """A broker that can be killed and started again where it was."""

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> Any: ...


class SparkHarness:
    """Input, a driver that runs pipelines over it, and checks of what came out."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        pipelines: Sequence[str],
        *,
        seed: int = 0,
        cluster: Cluster | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        self.sent = 0
        self.kills: Counter[str] = Counter()
        # Of the kills, those that came while a batch was being written.
        self.interrupted = 0
        self._folder = folder
        self._broker = broker
        self._pipelines = list(pipelines)
        self._cluster = cluster
        self._driver: subprocess.Popen[bytes] | None = None
        self._quiet = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        admin = AdminClient(self._quiet)
        admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1)])[SOURCE].result(60)

    def send(self, count: int) -> None:
        """Send numbers that were never sent before; durable when it returns."""
        producer = Producer({**self._quiet, "enable.idempotence": True, "linger.ms": 5})
        for number in range(self.sent, self.sent + count):
            row = json.dumps({"n": number, "k": number % KEYS})
            producer.produce(SOURCE, row, str(number % KEYS))
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0
        self.sent += count

    def start(self) -> None:
        """Start the driver if it does not run."""
        if self._driver is not None and self._driver.poll() is None:
            return
        command = [sys.executable, "-m", "tests.faults.spark_pipelines"]
        master = self._cluster.url if self._cluster else LOCAL
        command += [self._broker.bootstrap, master, *self._pipelines]
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**quick(), "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def send_and_wait_for_batches(self, count: int, more: int) -> None:
        """Send more and wait until every pipeline has finished this many batches after it."""
        wanted = {name: self.batch(name) + more for name in self._pipelines}
        self.send(count)
        self._until(lambda: all(self.batch(name) >= wanted[name] for name in self._pipelines))

    def send_and_wait_within_batch(self, count: int) -> None:
        """Send more and wait until a pipeline writes a batch, and some time of it has passed."""
        before = {name: self.batch(name) for name in self._pipelines}
        self.send(count)
        # One that has finished a batch was not seen writing it: it is that fast.
        self._until(
            lambda: self.is_busy() or any(self.batch(name) > before[name] for name in before)
        )
        assert self._driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(self.chance.uniform(0, PAUSE_SECONDS_MAX))

    def is_busy(self) -> bool:
        """Whether a pipeline has begun a batch and not finished it."""
        return any(self.batch(name, "offsets") > self.batch(name) for name in self._pipelines)

    def batch(self, name: str, log: str = "commits") -> int:
        """The last batch that a pipeline has finished, or begun by its log of offsets."""
        folder = self._folder / "home" / name / "v1" / "checkpoint" / log
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(each) for each in names if each.isdigit()), default=-1)

    def kill(self, what: str) -> None:
        """Kill the driver, its JVM, an executor, a process of its tasks, or the broker: kill -9."""
        assert self._driver is not None
        self.interrupted += self.is_busy()
        if what == "broker":
            self._broker.kill()
            self._broker.start()
        elif what == "driver":
            self._until(self._is_driving)
            self._driver.kill()
            self._driver.wait()
        else:
            self._until(lambda: self._kill_one(_MARKS[what]))
            if what == "jvm":
                self._driver.wait(WAIT_SECONDS)
        self.kills[what] += 1

    def _is_driving(self) -> bool:
        return self._driver is not None and self._driver.poll() is None

    def _kill_one(self, mark: str) -> bool:
        """Kill one of the processes whose command has this in it; False if there is none."""
        assert self._driver is not None
        above = (self._driver.pid, *(self._cluster.workers if self._cluster else ()))
        found = [pid for top in above for pid, command in _descendants(top) if mark in command]
        if not found:
            return False
        try:
            # The first Python process makes the others: without it, all of them are gone.
            os.kill(self.chance.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def wait_until_done(self) -> None:
        """Wait until the outputs hold what the input makes; the driver is kept alive."""
        self._until(lambda: not any(self.missing(name) for name in self._pipelines))

    def missing(self, name: str) -> bool:
        """Whether an output lacks something still."""
        return bool(self._check(name)[0])

    def doubled(self, name: str) -> list[Any]:
        """What an output holds that it should not."""
        return self._check(name)[1]

    def stop(self) -> None:
        """Stop the driver; the word is SIGTERM."""
        if self._driver is not None and self._driver.poll() is None:
            self._driver.terminate()
            try:
                self._driver.wait(60)
            except subprocess.TimeoutExpired:
                self._driver.kill()
                self._driver.wait()

    def complaint(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-3000:]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline_s, f"it did not happen in time\n{self.complaint()}"
            self.start()
            assert self._driver is not None
            try:
                self._driver.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue

    def _check(self, name: str) -> tuple[list[Any], list[Any]]:
        """What is missing from an output, and what is too much."""
        numbers = range(self.sent)
        sums = Counter({key: sum(range(key, self.sent, KEYS)) for key in range(KEYS)})
        if name == "counted":
            counts = {key: len(range(key, self.sent, KEYS)) for key in range(KEYS)}
            rows = [(row["k"], row["count"]) for row in self._topic("counted")]
            last = dict(rows)
            # A batch that was written twice shows the same count twice.
            return (
                [key for key in counts if last.get(key) != counts[key]],
                [row for row, times in Counter(rows).items() if times > 1],
            )
        if name == "summed":
            found = dict(self._rows("SELECT k, total FROM summed_v1"))
            missing = [key for key in sums if found.get(key, 0) < sums[key]]
            return missing, [key for key in found if found[key] > sums[key]]
        if name == "copied":
            seen = Counter(row["n"] for row in self._topic("copied"))
        elif name == "listed":
            seen = Counter(n for (n,) in self._rows("SELECT n FROM listed_v1"))
        else:
            seen = Counter(self._parquet(name))
        missing_numbers = [number for number in numbers if not seen[number]]
        return missing_numbers, [number for number, times in seen.items() if times > 1]

    def _topic(self, topic: str) -> list[dict[str, Any]]:
        """All committed records of a topic, in the order of each key."""
        consumer = Consumer(
            {**self._quiet, "group.id": "check", "isolation.level": "read_committed"}
        )
        try:
            known = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            places = [TopicPartition(topic, number, 0) for number in known]
            ends = {
                place.partition: consumer.get_watermark_offsets(place, timeout=60)[1]
                for place in places
            }
            consumer.assign(places)
            found: list[dict[str, Any]] = []
            deadline_s = time.monotonic() + 60
            while time.monotonic() < deadline_s:
                found += [
                    json.loads(it.value()) for it in consumer.consume(10_000, 0.1) if not it.error()
                ]
                at = {each.partition: each.offset for each in consumer.position(places)}
                if all(at[number] >= end for number, end in ends.items() if end > 0):
                    break
            return found
        finally:
            consumer.close()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        path = self._folder / "rows.db"
        if not path.exists():
            return []
        with sqlite3.connect(path, timeout=60) as connection:
            try:
                return connection.execute(sql).fetchall()
            except sqlite3.OperationalError as problem:
                if "no such table" in str(problem):
                    return []
                raise

    def _parquet(self, name: str) -> Iterator[int]:
        import pyarrow.parquet as pq

        for path in (self._folder / name / "v1").glob("batch=*/**/*.parquet"):
            yield from pq.ParquetFile(path).read(columns=["n"]).column("n").to_pylist()


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """The processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    left = parents.get(pid, [])
    while left:
        child = left.pop()
        try:
            yield child, Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue
        left += parents.get(child, [])
