"""`headrace bench services`: delayed messages, beside Celery on Redis with ETA."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.redis_server import RedisServer

from benchmarks import report
from benchmarks.asking import ROOT, BenchFailed, ask
from benchmarks.columns import OWN, ColumnsBench
from benchmarks.figures import Figure, Target, bounded
from benchmarks.peers import Headrace, Kafka, Peer, Running
from benchmarks.process import MemoryWatch, cpu_seconds

COLUMNS = {"headrace": "Headrace", "kafka": "on Apache Kafka", "celery": "Celery on Redis"}
DELAY_MS = 5_000
VALUE_BYTES = 1_000
PENDING, PENDING_CELERY = 1_000_000, 100_000
LARGE_BYTES = 1 << 30
FAR_MS = 30 * 86_400_000
TOPIC = "bench-target"
_WAIT_SECONDS = 600.0

FIGURES = (
    bounded("late-1000-p50", "1,000 due a second: late, p50", "ms"),
    bounded("late-1000-p99", "  late, p99", "ms", 100),
    bounded("cpu-1000", "  CPU of the service for one message", "µs"),
    Figure(
        "rate-5000",
        "5,000 due a second: delivered",
        "messages/s",
        "higher",
        Target(4_900, relative=False),
    ),
    bounded("late-5000-p99", "  late, p99", "ms"),
    bounded("memory-100k", "100,000 pending of 1 KB: memory", "MB"),
    bounded("memory-1m", "1,000,000 pending of 1 KB: memory", "MB", 300),
    bounded("rebuild-1m", "  rebuilt after a kill -9", "s", 60),
    bounded("large-send", "a message of 1 GB, streamed: memory of its sender", "MB", 100),
    bounded("large-consume", "  of a consumer", "MB", 100),
    bounded("large-handle", "  of a handler", "MB", 100),
)


class Service:
    """`headrace service delay` as a process, with its words in a file."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._log = log
        self._from = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "headrace", "service", "delay", "-b", bootstrap]
        with log.open("ab") as words:
            self._process = subprocess.Popen(command, stdout=words, stderr=words)
        self.pid = self._process.pid

    def wait_read(self) -> tuple[int, float]:
        """Wait until it has read its state; how many entries it has, and how long that took."""
        pattern = re.compile(r"headrace\.delay\.state is read: (\d+) entries, ([\d.]+) s")
        deadline_s = time.monotonic() + _WAIT_SECONDS
        while True:
            found = pattern.findall(self._log.read_text()[self._from :])
            if found:
                return int(found[-1][0]), float(found[-1][1])
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise BenchFailed(self._log.read_text()[-2000:])
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class ServicesBench(ColumnsBench):
    """The delay service on two brokers, then Celery, one after the other."""

    name = "services"
    description = "Delay messages by Headrace's service and by Celery on Redis."
    picture = "How late delayed messages are"
    columns = COLUMNS
    figures = FIGURES
    title = "Delayed messages"

    def measure(self, column: str, folder: Path, quick: bool, progress: Console) -> None:
        """Delay messages by one rival."""
        if column == "celery":
            self._celery(folder, quick, progress)
        else:
            peer: Peer = Headrace() if column == OWN else Kafka()
            self._service(column, peer, folder, quick, progress)

    def draw(self, rows: Mapping[str, Mapping[str, float | None]], axes: Any) -> None:
        """Bars of how late messages are, by who delays them."""
        shown = [name for name in COLUMNS if rows["late-1000-p99"][name] is not None]
        for offset, part, colour in ((0.2, "p50", "#7a9cc6"), (-0.2, "p99", "#2a7f62")):
            values = [rows[f"late-1000-{part}"][name] or 0.0 for name in shown]
            places = [index + offset for index in range(len(shown))]
            axes.barh(places, values, height=0.38, color=colour, label=part)
            for at, value in zip(places, values, strict=True):
                axes.text(value * 1.05, at, f"{report.number(value)} ms", va="center", fontsize=8)
        axes.set_yticks(range(len(shown)), [COLUMNS[name] for name in shown])
        axes.set_xscale("log")
        axes.set_xlabel("ms late at 1,000 due a second (log scale)")

    def _service(
        self, column: str, peer: Peer, folder: Path, quick: bool, progress: Console
    ) -> None:
        running = peer.start(folder / "broker")
        service: Service | None = None
        try:
            _make_topic(running)
            service = Service(running.bootstrap, folder / "service.log")
            service.wait_read()
            seconds = 5 if quick else 30
            self._flow(column, running, service, 1_000, seconds, progress)
            if column == "headrace":
                self._flow(column, running, service, 5_000, seconds, progress)
                self._pending(running, service, folder, quick, progress)
                self._large(running, quick, progress)
        finally:
            if service is not None:
                service.kill()
            peer.stop()

    def _flow(
        self,
        column: str,
        running: Running,
        service: Service,
        per_second: int,
        seconds: float,
        progress: Console,
    ) -> None:
        flow = {
            "bootstrap": running.bootstrap,
            "topic": TOPIC,
            "per_second": per_second,
            "seconds": seconds,
            "delay_ms": DELAY_MS,
            "value_bytes": VALUE_BYTES,
        }
        # The first messages find everything cold, on every side.
        ask("delay_flow", {**flow, "seconds": 2, "topic": f"{TOPIC}-warm"})
        cpu_s = cpu_seconds(service.pid)
        topic = f"{TOPIC}-{per_second}"
        answer = ask("delay_flow", {**flow, "topic": topic})
        cpu_s = cpu_seconds(service.pid) - cpu_s
        if answer["received"] != answer["sent"] or answer["early"]:
            raise BenchFailed(f"{answer['received']} of {answer['sent']} came: {answer}")
        progress.log(f"[dim]{per_second} a second: {answer}")
        self.details[f"{column} {per_second}"] = answer
        values = self.values[column]
        values[f"late-{per_second}-p50"] = answer["late_p50_ms"]
        values[f"late-{per_second}-p99"] = answer["late_p99_ms"]
        values[f"rate-{per_second}"] = answer["per_second"]
        values[f"cpu-{per_second}"] = cpu_s / answer["sent"] * 1e6

    def _pending(
        self, running: Running, service: Service, folder: Path, quick: bool, progress: Console
    ) -> None:
        values = self.values["headrace"]
        total = 0
        sizes = {"memory-100k": PENDING_CELERY, "memory-1m": PENDING}
        if quick:
            sizes = {"memory-100k": PENDING_CELERY // 10}
        with MemoryWatch(service.pid) as watch:
            for name, size in sizes.items():
                _fill(running.bootstrap, size - total)
                total = size
                values[name] = watch.rss_peak_bytes / 1e6
                progress.log(f"[dim]{size:,} pending: {values[name]:.0f} MB")
        service.kill()
        again = Service(running.bootstrap, folder / "service.log")
        try:
            with MemoryWatch(again.pid) as watch:
                entries, seconds = again.wait_read()
            if entries < total:
                raise BenchFailed(f"{entries} of {total} entries are back")
            values["rebuild-1m"] = seconds
            values[name] = max(values[name], watch.rss_peak_bytes / 1e6)
            progress.log(f"[dim]{entries:,} entries rebuilt in {seconds:.1f} s")
        finally:
            again.kill()

    def _large(self, running: Running, quick: bool, progress: Console) -> None:
        size = LARGE_BYTES // 16 if quick else LARGE_BYTES
        for verb in ("send", "consume", "handle"):
            command = [sys.executable, "-m", "tests.large.memory_process"]
            done = subprocess.run(
                [*command, verb, running.bootstrap, f"{TOPIC}-large", str(size)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise BenchFailed(done.stderr[-2000:])
            self.values[OWN][f"large-{verb}"] = int(done.stdout.split()[1]) / 1000
        progress.log(f"[dim]{size / 1e6:,.0f} MB in one message")

    def _celery(self, folder: Path, quick: bool, progress: Console) -> None:
        try:
            import celery  # noqa: F401
        except ImportError:
            self.left_out["celery"] = "celery is not installed"
            return
        values = self.values["celery"]
        with RedisServer() as server:
            # As kombu calls a socket of Redis.
            url = server.url.replace("unix://", "redis+socket://")
            worker = _worker(url, folder / "celery.log")
            try:
                flow = {
                    "url": server.url,
                    "broker": url,
                    "per_second": 1_000,
                    "seconds": 5 if quick else 30,
                    "delay_ms": DELAY_MS,
                    "value_bytes": VALUE_BYTES,
                    "patience_s": 120,
                }
                ask("celery_eta", {**flow, "seconds": 2})
                answer = ask("celery_eta", flow)
                progress.log(f"[dim]1000 a second: {answer}")
                self.details["celery 1000"] = answer
                values["late-1000-p50"] = answer["late_p50_ms"]
                values["late-1000-p99"] = answer["late_p99_ms"]
                size = PENDING_CELERY // 10 if quick else PENDING_CELERY
                far = {"delay_ms": FAR_MS, "patience_s": 0, "per_second": 10_000}
                with MemoryWatch(worker.pid) as watch:
                    ask("celery_eta", {**flow, **far, "seconds": size / 10_000})
                    # It takes them all into its own memory, at its own pace.
                    _wait_steady(watch)
                values["memory-100k"] = watch.rss_peak_bytes / 1e6
                progress.log(f"[dim]{size:,} pending: {values['memory-100k']:.0f} MB")
            finally:
                worker.kill()
                worker.wait()


def _make_topic(running: Running) -> None:
    """Make the targets; the first call also waits for the broker to answer."""
    names = [f"{TOPIC}-warm", f"{TOPIC}-1000", f"{TOPIC}-5000"]
    deadline_s = time.monotonic() + 60
    while True:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        try:
            for future in admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
                future.result(30)
            return
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


def _fill(bootstrap: str, count: int) -> None:
    """Schedule messages for a far day, and wait until the service has taken them all in."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 1_000_000}
    )
    run = f"{time.time_ns():x}"
    due = str(time.time_ns() // 1_000_000 + FAR_MS)
    value = b"x" * VALUE_BYTES
    for number in range(count):
        headers = [
            ("headrace-target", TOPIC),
            ("headrace-id", f"{run}-{number}"),
            ("headrace-deliver-at", due),
        ]
        while True:
            try:
                producer.produce("headrace.delay", value, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "headrace.delay"}
    )
    place = TopicPartition("headrace.delay", 0)
    _, end = consumer.get_watermark_offsets(place, 30)
    deadline_s = time.monotonic() + _WAIT_SECONDS
    while consumer.committed([place], 30)[0].offset < end:
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{count} messages were not taken in")
        time.sleep(0.2)
    consumer.close()


def _worker(url: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.rivals.celery_eta", "-b", url]
    command += ["worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    with log.open("wb") as words:
        worker = subprocess.Popen(command, cwd=ROOT, stdout=words, stderr=words)
    deadline_s = time.monotonic() + 60
    while b" ready." not in log.read_bytes():
        if worker.poll() is not None or time.monotonic() > deadline_s:
            worker.kill()
            raise BenchFailed(log.read_text()[-2000:])
        time.sleep(0.1)
    return worker


def _wait_steady(watch: MemoryWatch) -> None:
    """Until the memory has not grown for some seconds."""
    last, since = 0, time.monotonic()
    while time.monotonic() - since < 5:
        if watch.rss_peak_bytes > last:
            last, since = watch.rss_peak_bytes, time.monotonic()
        time.sleep(0.2)


BENCH = ServicesBench()
