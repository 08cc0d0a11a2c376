"""The verbs for groups and transactions on Headrace and, as the long form, on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.apache_kafka import java_tool
from tests.cli.members import Member
from tests.cli.offsets import commit, committed, fill
from tests.cli.open_transactions import TIMEOUT_SECONDS, begin, leave_hanging
from tests.cli.tool import Headrace
from tests.interop.brokers import running

from headrace.protocol.errors import KafkaError as Refusal

# Else Apache Kafka would not let a transaction hang.
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@dataclass(frozen=True)
class Address:
    """Where the broker is, whoever built it."""

    bootstrap: str


APACHE = pytest.param("apache", marks=pytest.mark.long)
only_apache = pytest.mark.parametrize("broker", [APACHE], indirect=True, scope="module")
only_headrace = pytest.mark.parametrize("broker", ["headrace"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["headrace", APACHE])
def broker(request: pytest.FixtureRequest) -> Iterator[Address]:
    settings = UNVERIFIED if request.param == "apache" else {}
    with running(request.param, settings) as address:
        yield Address(address)


def test_a_group_is_read_moved_and_deleted(
    headrace: Headrace, broker: Address, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "orders", [10, 6])
    with Member(broker.bootstrap, "shop", "orders", group_instance_id="till-1") as member:
        member.wait_for(lambda member: member.owned == {0, 1})
        done = headrace("group", "rebalance", "shop")
        assert done.stdout.startswith("rebalanced shop: 1 member, ")
        member.wait_for(lambda member: member.assigned == 2)
        assert (member.revoked, member.lost) == (1, 0)
        member.wait_for(lambda member: member.read >= 16)
        [group] = json.loads(headrace("group", "describe", "shop", "-o", "json").stdout)
        assert group["members"][0]["instance"] == "till-1"
        assert "has members" in headrace("group", "delete", "shop", fails=True).stderr
    headrace("group", "rebalance", "shop", "--remove", "till-1")
    headrace("group", "seek", "shop", "--to", "-3", "-t", "orders:1")
    headrace("group", "seek", "shop", "--to", "1970-01-01T00:00:03Z", "-t", "orders:0")
    plan = tmp_path / "plan.csv"
    headrace("group", "seek", "shop", "--to", "current", "-n", "--export", str(plan))
    assert plan.read_text() == "orders,0,2\norders,1,3\n"
    headrace("group", "seek", "copy", "--new", "--to", f"file:{plan}")
    assert committed(broker.bootstrap, "copy", "orders", 2) == [2, 3]
    headrace("group", "delete", "copy", "-t", "orders:1")
    assert committed(broker.bootstrap, "copy", "orders", 2) == [2, None]
    headrace("group", "delete", "shop", "copy")
    assert json.loads(headrace("group", "list", "-o", "json").stdout) == []


@pytest.mark.long
def test_kafkas_own_tool_reads_the_same_file(
    headrace: Headrace, broker: Address, tmp_path: Path
) -> None:
    fill(broker.bootstrap, "shared", [10])
    commit(broker.bootstrap, "ours", {("shared", 0): 7})
    commit(broker.bootstrap, "theirs", {("shared", 0): 1})
    plan = tmp_path / "plan.csv"
    headrace("group", "seek", "ours", "--to", "current", "-n", "--export", str(plan))
    reset = ["--bootstrap-server", broker.bootstrap, "--group", "theirs", "--reset-offsets"]
    java_tool("consumer-groups", *reset, "--from-file", str(plan), "--execute")
    assert committed(broker.bootstrap, "theirs", "shared", 1) == [7]
    exported = java_tool("consumer-groups", *reset, "--all-topics", "--to-earliest", "--export")
    plan.write_text(exported)
    headrace("group", "seek", "theirs", "--to", f"file:{plan}")
    assert committed(broker.bootstrap, "theirs", "shared", 1) == [0]


def test_a_transaction_is_listed_described_and_aborted(headrace: Headrace, broker: Address) -> None:
    fill(broker.bootstrap, "payments", [1, 1])
    producer = begin(broker.bootstrap, "pay-1", [("payments", 0), ("payments", 1)])
    done = headrace("txn", "list", "--state", "ongoing", "--longer-than", "0s", "-o", "json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["pay-1"]
    [found] = json.loads(headrace("txn", "describe", "pay-1", "-o", "json").stdout)
    assert [row["start"] for row in found["partitions"]] == [1, 1]
    place = ("--topic", "payments", "--partition", "0", "--start-offset", "1")
    assert "headrace txn abort pay-1" in headrace("txn", "abort", *place, fails=True).stderr
    headrace("txn", "abort", "pay-1")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED


@only_headrace
def test_a_producer_cannot_leave_one_hanging(broker: Address) -> None:
    fill(broker.bootstrap, "accounts", [0])
    # The coordinator is asked before a record is taken (KIP-890).
    with pytest.raises(Refusal, match="must be aborted"):
        leave_hanging(broker.bootstrap, "ghost", "accounts")


@only_apache
def test_a_hanging_transaction_is_found_and_ended(headrace: Headrace, broker: Address) -> None:
    fill(broker.bootstrap, "accounts", [0])
    producer = leave_hanging(broker.bootstrap, "ghost", "accounts")
    [row] = json.loads(headrace("txn", "hanging", "--longer-than", "0s", "-o", "json").stdout)
    assert (row["topic"], row["start"], row["producer"]) == ("accounts", 0, producer)
    headrace("txn", "abort", "-t", "accounts", "-p", "0", "--start-offset", "0")
    assert json.loads(headrace("txn", "hanging", "--longer-than", "0s", "-o", "json").stdout) == []


@only_apache
def test_a_group_that_its_broker_shares_out(headrace: Headrace, broker: Address) -> None:
    fill(broker.bootstrap, "next", [3, 3])
    with Member(broker.bootstrap, "modern", "next", group_protocol="consumer") as member:
        member.wait_for(lambda member: member.owned == {0, 1})
        done = headrace("group", "list", "--type", "consumer", "-o", "json")
        assert [row["group"] for row in json.loads(done.stdout)] == ["modern"]
        [group] = json.loads(headrace("group", "describe", "modern", "-o", "json").stdout)
        assert group["type"] == "consumer"
        assert group["members"][0]["partitions"] == {"next": [0, 1]}
        errors = headrace("group", "rebalance", "modern", fails=True).stderr
        assert "its broker rebalances by itself" in errors
        done = headrace("group", "seek", "modern", "--to", "latest", "-t", "next", fails=True)
        assert "has members" in done.stderr
    headrace("group", "seek", "modern", "--to", "1", "-t", "next")
    assert committed(broker.bootstrap, "modern", "next", 2) == [1, 1]
