"""Partitions move between data folders, asked for by real clients while data flow."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import NoError
from tests.apache_kafka import QUICK_JVM, ApacheKafka, java_tool
from tests.broker.wire import Wire
from tests.faults.processes import BrokerProcess
from tests.waiting import wait_until

from headrace.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.errors import ErrorCode

WAIT_SECONDS = 150.0
PARTITIONS = 3


class Disks:
    """Two data folders of a broker under test."""

    def __init__(self, root: Path) -> None:
        self.logs, self.other = root / "logs", root / "other"
        self.settings = {"log.dirs": f"{self.logs},{self.other}"}


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


@pytest.fixture
def broker(disks: Disks, tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = [
        *(f"{name}={value}" for name, value in disks.settings.items()),
        f"metadata.log.dir={tmp_path / 'metadata'}",
        "log.segment.bytes=1048576",
    ]
    with BrokerProcess(tmp_path / "data", settings=settings) as process:
        yield process


class Flow:
    """A producer that never pauses, and what it was told."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )
        self._topic = topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: dict[int, list[bytes]] = {}
        self.errors: list[str] = []

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.setdefault(message.partition(), []).append(message.value())

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            try:
                value = b"%d " % number + b"x" * 500
                self._producer.produce(
                    self._topic,
                    value,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.01)
            if number % 100 == 0:
                self._producer.poll(0)
                self._done.wait(0.002)
        assert self._producer.flush(WAIT_SECONDS) == 0

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def consumed(bootstrap: str, topic: str, upto: int) -> dict[int, list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: dict[int, list[bytes]] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(map(len, found.values())) < upto and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found.setdefault(message.partition(), []).append(message.value())
    consumer.close()
    return found


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_SECONDS)


def test_records_flow_while_kafka_python_moves_their_partitions(
    broker: BrokerProcess, disks: Disks
) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "t")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    (node,) = admin.describe_cluster()["brokers"]

    def future_or_elsewhere(path: Path) -> list[object]:
        (told,) = admin.describe_log_dirs(["t"])
        return [
            row
            for folder in told["log_dirs"]
            for topic in folder["topics"]
            for row in topic["partitions"]
            if row["is_future_key"] or folder["log_dir"] != str(path)
        ]

    with Flow(bootstrap, "t") as flow:
        wait_until(lambda: sum(map(len, flow.acknowledged.values())) > 5000)
        for path in (disks.other, disks.logs, disks.other):
            answer = admin.alter_replica_log_dirs(
                {("t", index, node["broker_id"]): str(path) for index in range(PARTITIONS)}
            )
            assert set(answer.values()) == {NoError}
            wait_until(lambda path=path: not future_or_elsewhere(path))  # type: ignore[misc]
            before = sum(map(len, flow.acknowledged.values()))
            wait_until(lambda at=before: sum(map(len, flow.acknowledged.values())) > at + 500)  # type: ignore[misc]
    admin.close()
    assert flow.errors == []
    upto = sum(map(len, flow.acknowledged.values()))
    assert consumed(bootstrap, "t", upto) == flow.acknowledged
    assert sorted(path.name for path in disks.other.glob("t-?")) == ["t-0", "t-1", "t-2"]
    assert not list(disks.logs.glob("t-?"))


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
def test_java_tool_moves_partitions_and_sees_that_they_have(
    broker: BrokerProcess, disks: Disks, tmp_path: Path
) -> None:
    create(broker.bootstrap, "t")
    plan = tmp_path / "plan.json"
    # Kafka's own words for a replica's folder.
    row = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(disks.other)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def reassign(*arguments: str) -> str:
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        server = ("--bootstrap-server", broker.bootstrap)
        return java_tool(tool, *server, "--reassignment-json-file", str(plan), *arguments)

    done = reassign("--execute", "--replica-alter-log-dirs-throttle", "100000000")
    assert "Successfully started moving log directory" in done
    wait_until(lambda: (disks.other / "t-0").is_dir() and not (disks.logs / "t-0").exists())
    assert "completed" in reassign("--verify")


def answers(bootstrap: str, disks: Disks) -> dict[str, list[int]]:
    """The error codes for all kinds of moves that are refused, or are none."""
    places = {"known": ("t", 0), "no such partition": ("t", 9), "no such topic": ("absent", 0)}
    paths = {
        "log dir": str(disks.logs),
        "log dir with a slash": f"{disks.logs}/",
        "elsewhere": "/elsewhere",
        "relative": "logs",
        "nowhere": "",
    }
    found = {}
    with Wire(bootstrap) as wire:
        for label, path in paths.items():
            for name, (topic, index) in places.items():
                row = AlterReplicaLogDirTopic(name=topic, partitions=[index])
                request = AlterReplicaLogDirsRequest(
                    dirs=[AlterReplicaLogDir(path=path, topics=[row])]
                )
                answer = wire.call(request, AlterReplicaLogDirsResponse, 2)
                found[f"{name} to {label}"] = [
                    each.error_code for result in answer.results for each in result.partitions
                ]
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_refusals_are_those_of_apache_kafka(tmp_path: Path) -> None:
    found = []
    for kind in ("headrace", "apache"):
        disks = Disks(tmp_path / kind)
        with ExitStack() as stack:
            broker: BrokerProcess | ApacheKafka
            if kind == "apache":
                broker = ApacheKafka(
                    settings=disks.settings, data_dir=tmp_path / kind, heap="512m", jvm=QUICK_JVM
                )
            else:
                (tmp_path / kind).mkdir()
                settings = [f"{name}={value}" for name, value in disks.settings.items()]
                broker = BrokerProcess(tmp_path / kind / "data", settings=settings)
            stack.enter_context(broker)
            create(broker.bootstrap, "t")
            wait_until(lambda at=broker.bootstrap: _is_there(at))  # type: ignore[misc]
            _move(broker.bootstrap, disks.logs)
            found.append(answers(broker.bootstrap, disks))
    assert found[0] == found[1]


def _is_there(bootstrap: str) -> bool:
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=10).topics
    return all(part.leader >= 0 for part in topics["t"].partitions.values())


def _move(bootstrap: str, path: Path) -> None:
    """Have t-0 where the questions expect it."""
    row = AlterReplicaLogDirTopic(name="t", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[row])])
    with Wire(bootstrap) as wire:
        answer = wire.call(request, AlterReplicaLogDirsResponse, 2)
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    wait_until((path / "t-0").is_dir)
