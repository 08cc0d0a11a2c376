"""`headrace delay` and `headrace service`: looking at delayed messages, changing and running."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL, Headrace
from tests.client.kafkas import Kafka
from tests.ledger.delay.reading import read_all
from tests.waiting import wait_until

from headrace.client import Producer
from headrace.ledger.delay.service import delay_service
from headrace.ledger.service import LedgerOptions

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

OPTIONS = LedgerOptions(state_partitions=1)


@pytest.fixture
def kafka(broker: BrokerThread) -> Kafka:
    return Kafka("headrace", broker.bootstrap)


@pytest.fixture
def producer(kafka: Kafka) -> Iterator[Producer]:
    """A producer beside a delay service."""
    service = delay_service(kafka.quiet, options=OPTIONS)
    service.start()
    try:
        with Producer(kafka.quiet) as producer:
            yield producer
    finally:
        service.stop()


def schedule(headrace: Headrace, producer: Producer, id: str, after: str = "1h") -> None:
    """Send a delayed message, and wait until the service has it."""
    headers = {"headrace-id": id, "x": b"\xff"}
    producer.send_and_wait("notes", b"buy milk", key=b"k", headers=headers, after=after)
    wait_until(lambda: id in headrace("delay", "list").stdout)


def test_delayed_messages_are_listed_shown_moved_and_cancelled(
    headrace: Headrace, producer: Producer, kafka: Kafka
) -> None:
    schedule(headrace, producer, "later", "2h")
    schedule(headrace, producer, "milk")
    lines = headrace("delay", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "milk", "later"]
    assert lines[1].split()[1] == "notes"
    assert headrace("delay", "list", "--limit", "1").stdout.count("notes") == 1
    assert headrace("delay", "list", "--target", "other").stdout.count("notes") == 0
    [first, _] = json.loads(headrace("delay", "list", "-o", "json").stdout)
    shown = json.loads(headrace("delay", "show", "milk").stdout)
    assert shown == first
    assert shown["value"] == "buy milk"
    assert shown["headers"] == [["headrace-id", "milk"], ["x", {"base64": "/w=="}]]

    headrace("delay", "cancel", "later")
    wait_until(lambda: "later" not in headrace("delay", "list").stdout)
    moved = headrace("delay", "reschedule", "milk", "--at", "2040-01-01T12:00Z").stdout
    assert moved == "milk is due at 2040-01-01T12:00:00.000Z\n"
    wait_until(lambda: "2040-01-01" in headrace("delay", "show", "milk").stdout)
    assert json.loads(headrace("delay", "show", "milk").stdout)["value"] == "buy milk"
    headrace("delay", "reschedule", "milk", "--after", "0ms")
    wait_until(lambda: read_all(kafka, "notes"))
    assert [record.value() for record in read_all(kafka, "notes")] == [b"buy milk"]
    assert "milk" in headrace("delay", "show", "milk", fails=True).stderr


def test_what_is_wrong_is_said(headrace: Headrace) -> None:
    assert headrace("delay", "list").stdout.splitlines() == ["id  target  due  left  key  bytes"]
    for verb in (("show", "a"), ("cancel", "a"), ("reschedule", "a", "--after", "5m")):
        words = headrace("delay", *verb, fails=True).stderr
        assert "there is no delayed message with id 'a'" in words
        assert "hint: headrace delay list" in words
    for options in ((), ("--after", "5m", "--at", "@5"), ("--after", "soon"), ("--at", "soon")):
        assert "--a" in headrace("delay", "reschedule", "a", *options, fails=True).stderr


def test_a_cancel_may_come_before_its_message(
    headrace: Headrace, producer: Producer, kafka: Kafka
) -> None:
    assert headrace("delay", "cancel", "a", "--force").stdout == "asked to cancel a\n"
    schedule(headrace, producer, "b")


def test_a_service_that_lacks_something_says_so(headrace: Headrace, tmp_path: Path) -> None:
    assert "--store" in headrace("service", "relay", fails=True).stderr
    assert "--app" in headrace("service", "retry", fails=True).stderr
    assert "no.such" in headrace("service", "delay", "-X", "no.such=1", fails=True).stderr
    assert headrace("service", "other", fails=True).stderr


@pytest.fixture
def up(tmp_path: Path) -> Iterator[str]:
    """`headrace up`, and its address."""
    command = [*TOOL, "up", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().split() for _ in range(6)]
        address = next(line[1] for line in lines if line[:1] == ["broker"])
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0, (tmp_path / "errors").read_text()
        assert services_of(address) == []
    finally:
        process.kill()
        process.communicate()


def services_of(bootstrap: str) -> list[str]:
    """The command lines of services that run for a broker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"service" in words and bootstrap.encode() in words:
            found.append(words[words.index(b"service") + 1].decode())
    return found


def test_up_runs_the_delay_service_from_its_first_use_on(up: str) -> None:
    kafka = Kafka("headrace", up)
    assert services_of(up) == []
    began_ms = time.time_ns() // 1_000_000
    headers = {"headrace-id": "a"}
    with Producer(kafka.quiet) as producer:
        producer.send_and_wait("notes", b"hello", headers=headers, after="50ms")
    wait_until(lambda: read_all(kafka, "notes"))
    [record] = read_all(kafka, "notes")
    assert record.timestamp()[1] >= began_ms + 50
    assert "delay" in services_of(up)
