"""`headrace txn` with real transactional producers."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.cli.offsets import fill
from tests.cli.open_transactions import TIMEOUT_SECONDS, begin, hanging_batch
from tests.cli.tool import Headrace

from headrace.storage import Origin
from headrace.testing import BrokerThread

PRODUCER = 4711


@pytest.fixture
def orders(broker: BrokerThread) -> str:
    """A topic of two partitions with one record each."""
    fill(broker.bootstrap, "orders", [1, 1])
    return broker.bootstrap


def test_transactions_are_listed_by_state_producer_and_age(headrace: Headrace, orders: str) -> None:
    begin(orders, "done", [("orders", 1)]).commit_transaction(TIMEOUT_SECONDS)
    producer = begin(orders, "pay-1", [("orders", 0), ("orders", 1)])

    def names(*options: str) -> list[str]:
        rows = json.loads(headrace("txn", "list", *options, "-o", "json").stdout)
        return [row["id"] for row in rows]

    [done, opened] = json.loads(headrace("txn", "list", "-o", "json").stdout)
    assert done["state"] == "CompleteCommit"
    assert opened.pop("running_ms") < 60_000
    assert opened.pop("producer") != done["producer"]
    assert opened == {"id": "pay-1", "state": "Ongoing", "partitions": 2, "coordinator": 1}
    assert names() == ["done", "pay-1"]
    assert names("--state", "ongoing") == ["pay-1"]
    assert names("--producer", str(done["producer"])) == ["done"]
    assert names("--longer-than", "0s") == ["pay-1"]
    assert names("--longer-than", "1h") == []
    assert "pay-1  Ongoing" in headrace("txn", "list", "--state", "Ongoing").stdout
    producer.abort_transaction(TIMEOUT_SECONDS)


def test_an_open_transaction_is_described_with_its_partitions(
    headrace: Headrace, orders: str, broker: BrokerThread
) -> None:
    producer = begin(orders, "pay-1", [("orders", 0), ("orders", 1)])
    [found] = json.loads(headrace("txn", "describe", "pay-1", "-o", "json").stdout)
    assert abs(found.pop("started_ms") - time.time() * 1000) < 60_000
    assert found.pop("producer") >= 0
    assert found.pop("epoch") >= 0
    assert found == {
        "id": "pay-1",
        "state": "Ongoing",
        "timeout_ms": 120_000,
        "coordinator": {"node_id": 1, "host": "127.0.0.1", "port": broker.port},
        "partitions": [
            {"topic": "orders", "partition": partition, "start": 1} for partition in (0, 1)
        ],
    }
    text = headrace("txn", "describe", "pay-1").stdout
    assert "transaction pay-1  state Ongoing" in text
    assert "timeout 2m  started " in text
    errors = headrace("txn", "describe", "pay1", fails=True).stderr
    assert "did you mean pay-1?" in errors
    producer.abort_transaction(TIMEOUT_SECONDS)


def test_an_abort_by_id_fences_the_producer_and_frees_the_readers(
    headrace: Headrace, orders: str
) -> None:
    producer = begin(orders, "pay-1", [("orders", 0)])
    headrace("produce", "orders", "-p", "0", stdin="after\n")
    read = ("consume", "orders", "-e", "-X", "isolation.level=read_committed", "--partition", "0")
    assert headrace(*read).stdout == "0\n"
    done = headrace("txn", "abort", "pay-1")
    assert done.stdout.startswith("aborted pay-1: producer ")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert headrace(*read).stdout == "0\nafter\n"
    [found] = json.loads(headrace("txn", "describe", "pay-1", "-o", "json").stdout)
    assert found["timeout_ms"] == 120_000
    errors = headrace("txn", "abort", "pay-1", fails=True).stderr
    assert "'pay-1' has no open transaction" in errors


def test_a_part_of_a_known_transaction_is_not_aborted_alone(
    headrace: Headrace, orders: str
) -> None:
    producer = begin(orders, "pay-1", [("orders", 0), ("orders", 1)])
    place = ("--topic", "orders", "--partition", "0", "--start-offset")
    errors = headrace("txn", "abort", *place, "1", fails=True).stderr
    assert "headrace txn abort pay-1" in errors
    errors = headrace("txn", "abort", *place, "7", fails=True).stderr
    assert "open ones start at 1" in errors
    rows = json.loads(headrace("txn", "hanging", "--longer-than", "0s", "-o", "json").stdout)
    assert rows == []
    producer.commit_transaction(TIMEOUT_SECONDS)


def test_a_hanging_transaction_is_found_and_ended_where_it_hangs(
    headrace: Headrace, orders: str, broker: BrokerThread
) -> None:
    partition = broker.broker.node.partitions.get("orders", 0)
    assert partition is not None
    # Straight into the log, since a producer's would be refused (KIP-890).
    batch, node = memoryview(hanging_batch(PRODUCER, epoch=3)), broker.broker.node
    broker.call(lambda: partition.append(batch, node.clock.now_ms(), Origin.COORDINATOR))
    broker.run(partition.durable_end())
    headrace("produce", "orders", "-p", "0", stdin="after\n")
    read = ("consume", "orders", "-e", "-X", "isolation.level=read_committed", "--partition", "0")
    assert headrace(*read).stdout == "0\n"
    assert json.loads(headrace("txn", "hanging", "-o", "json").stdout) == [], "not old enough"
    hanging = ("txn", "hanging", "--longer-than", "0s")
    [row] = json.loads(headrace(*hanging, "-o", "json").stdout)
    assert row.pop("last").endswith("Z")
    assert row == {"topic": "orders", "partition": 0, "start": 1, "producer": PRODUCER, "epoch": 3}
    [*_, advice] = headrace(*hanging, "--topic", "orders:0").stdout.splitlines()
    assert headrace(*hanging, "--topic", "orders:1", "-o", "json").stdout == "[]\n"
    arguments = advice.removeprefix("end one with: headrace ").split()
    done = headrace(*arguments)
    assert done.stdout == f"aborted the transaction of producer {PRODUCER} in orders:0\n"
    assert headrace(*read).stdout == "0\nafter\n"
    assert json.loads(headrace(*hanging, "-o", "json").stdout) == []


def test_what_cannot_be_is_refused_with_a_hint(headrace: Headrace, orders: str) -> None:
    for arguments, message in {
        ("abort",): "either TRANSACTIONAL_ID, or --topic",
        ("abort", "pay-1", "--topic", "orders"): "either TRANSACTIONAL_ID, or --topic",
        ("abort", "nobody"): "there is no transactional id 'nobody'",
        ("describe", "nobody"): "headrace txn list",
        ("abort", "-t", "x", "-p", "0", "--start-offset", "0"): "there is no partition x:0",
        ("abort", "-t", "orders", "-p", "0", "--start-offset", "0"): "no transaction is open there",
        ("hanging", "--topic", "x"): "there is no topic 'x'",
        ("hanging", "--longer-than", "15"): "is not a duration",
    }.items():
        assert message in headrace("txn", *arguments, fails=True).stderr
