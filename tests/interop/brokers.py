"""The brokers that clients are tried on, each as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.apache_kafka import QUICK_JVM, ApacheKafka, free_ports
from tests.faults.processes import BrokerProcess

# A group that waits three seconds for its first members would make every test wait.
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}

_STOP_SECONDS_MAX = 20.0


@contextmanager
def running(kind: str, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run "headrace" or "apache" and give its address."""
    settings = {**SETTINGS, **(settings or {})}
    if kind == "apache":
        with ApacheKafka(settings=settings, heap="512m", jvm=QUICK_JVM) as kafka:
            yield kafka.bootstrap
    else:
        with tempfile.TemporaryDirectory(prefix="headrace-interop-") as folder:
            yield from _headrace(Path(folder), settings)


def restartable(kind: str, folder: Path) -> BrokerProcess | ApacheKafka:
    """A broker that can be killed and started again on the same data and port."""
    if kind == "apache":
        return ApacheKafka(settings=SETTINGS, data_dir=folder, heap="512m", jvm=QUICK_JVM)
    return BrokerProcess(folder, settings=[f"{name}={value}" for name, value in SETTINGS.items()])


def _headrace(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "headrace", "broker", "--listen", f"127.0.0.1:{port}"]
    command += ["--data-dir", str(folder / "data")]
    # As Apache Kafka is set here, so that tools see the same of both.
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", **settings}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = folder / "broker.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("ready "):
            raise RuntimeError(f"headrace did not start: {ready}{log.read_text()[-4000:]}")
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
