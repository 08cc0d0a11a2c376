"""The command line tools of Apache Kafka, each in a JVM of its own."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.apache_kafka import java_tool

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")


@pytest.fixture
def topic() -> str:
    return f"tools-{uuid.uuid4().hex[:8]}"


def test_topics_are_made_described_grown_and_deleted(bootstrap: str, topic: str) -> None:
    def topics(*arguments: str) -> str:
        return java_tool("topics", "--bootstrap-server", bootstrap, "--topic", topic, *arguments)

    settings = ["--config", "retention.ms=3600000", "--config", "cleanup.policy=compact"]
    topics("--create", "--partitions", "2", "--replication-factor", "1", *settings)
    topics("--alter", "--partitions", "3")
    described = topics("--describe")
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=3600000" in described
    assert "cleanup.policy=compact" in described
    assert described.count("Leader: ") == 3
    topics("--delete")
    assert topic not in java_tool("topics", "--bootstrap-server", bootstrap, "--list").split()


def test_console_producer_and_consumer_pass_keys_and_headers(bootstrap: str, topic: str) -> None:
    parsing = ["parse.key=true", "key.separator=:", "parse.headers=true", "headers.delimiter=|"]
    java_tool(
        "console-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *(word for rule in parsing for word in ("--reader-property", rule)),
        stdin="name:header one|key:first\nname:header two|key:second\n",
    )
    printing = ["print.key=true", "print.headers=true", "print.offset=true"]
    consumed = java_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", "2", "--timeout-ms", "20000", "--group", topic),
        *(word for rule in printing for word in ("--formatter-property", rule)),
    )
    assert consumed.splitlines() == [
        "Offset:0\tname:header one\tkey\tfirst",
        "Offset:1\tname:header two\tkey\tsecond",
    ]


def test_offsets_are_listed_and_records_deleted(bootstrap: str, topic: str, tmp_path: Path) -> None:
    java_tool(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "100", "--record-size", "50", "--throughput", "-1"),
        *("--bootstrap-server", bootstrap),
    )

    def offsets(time: str) -> str:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--time", time]
        return java_tool("get-offsets", *arguments).strip()

    assert offsets("latest") == f"{topic}:0:100"
    plan = {"partitions": [{"topic": topic, "partition": 0, "offset": 40}], "version": 1}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    deleted = java_tool(
        "delete-records", "--bootstrap-server", bootstrap, "--offset-json-file", str(file)
    )
    assert "low_watermark: 40" in deleted
    assert offsets("earliest") == f"{topic}:0:40"
    assert offsets("max-timestamp").startswith(f"{topic}:0:")


def test_consumer_performance_reads_what_producer_performance_wrote(
    bootstrap: str, topic: str
) -> None:
    settings = ["acks=all", "compression.type=lz4", "linger.ms=5"]
    produced = java_tool(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "200", "--throughput", "-1"),
        *("--bootstrap-server", bootstrap),
        *(word for setting in settings for word in ("--command-property", setting)),
    )
    assert "5000 records sent" in produced
    consumed = java_tool(
        "consumer-perf-test",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "5000"),
        *("--hide-header", "--timeout", "20000"),
    )
    assert consumed.split(", ")[4] == "5000"


def test_groups_are_listed_described_reset_and_deleted(bootstrap: str, topic: str) -> None:
    def groups(*arguments: str) -> str:
        return java_tool("consumer-groups", "--bootstrap-server", bootstrap, *arguments)

    java_tool(
        "console-producer", "--bootstrap-server", bootstrap, "--topic", topic, stdin="a\nb\nc\n"
    )
    java_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", "2", "--timeout-ms", "20000", "--group", topic),
    )
    assert topic in groups("--list").split()
    described = groups("--describe", "--group", topic).split()
    # The row has the group, the topic, then partition, committed offset, end and lag.
    assert described[described.index("0") - 1 :][:5] == [topic, "0", "2", "3", "1"]
    groups("--group", topic, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    groups("--group", topic, "--delete")
    assert topic not in groups("--list").split()


def test_transactions_are_listed_described_and_aborted(bootstrap: str, topic: str) -> None:
    def transactions(*arguments: str) -> list[dict[str, str]]:
        """The table that the tool prints, by the names of its columns."""
        said = java_tool("transactions", "--bootstrap-server", bootstrap, *arguments)
        names, *rows = (line.split("\t") for line in said.splitlines() if "\t" in line)
        return [dict(zip(map(str.strip, names), map(str.strip, row), strict=True)) for row in rows]

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"hanging")
    assert producer.flush(20) == 0
    (listed,) = (row for row in transactions("list") if row["TransactionalId"] == topic)
    assert listed["TransactionState"] == "Ongoing"
    (described,) = transactions("describe", "--transactional-id", topic)
    assert described["TopicPartitions"] == f"{topic}-0"
    assert described["ProducerId"] == listed["ProducerId"]
    place = ["--topic", topic, "--partition", "0"]
    (active,) = transactions("describe-producers", *place)
    assert active["ProducerId"] == listed["ProducerId"]
    assert active["CurrentTransactionStartOffset"] == "0"
    java_tool(
        "transactions", "--bootstrap-server", bootstrap, "abort", *place, "--start-offset", "0"
    )
    (aborted,) = transactions("describe-producers", *place)
    assert aborted["CurrentTransactionStartOffset"] == "None"


def test_configs_are_described_and_changed(bootstrap: str, topic: str) -> None:
    java_tool("topics", "--bootstrap-server", bootstrap, "--topic", topic, "--create")

    def configs(*arguments: str) -> str:
        entity = ["--entity-type", "topics", "--entity-name", topic]
        return java_tool("configs", "--bootstrap-server", bootstrap, *entity, *arguments)

    configs("--alter", "--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "max.message.bytes=2000" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in configs("--describe")


def test_log_dirs_and_versions_are_described(bootstrap: str, topic: str) -> None:
    java_tool("topics", "--bootstrap-server", bootstrap, "--topic", topic, "--create")
    listed = java_tool(
        "log-dirs", "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic
    )
    described = json.loads(next(line for line in listed.splitlines() if line.startswith("{")))
    (row,) = (row for row in described["brokers"][0]["logDirs"] if row["partitions"])
    assert [part["partition"] for part in row["partitions"]] == [f"{topic}-0"]
    assert row["error"] is None
    versions = java_tool("broker-api-versions", "--bootstrap-server", bootstrap)
    assert "Produce(0): 0 to " in versions
    assert "ERROR" not in versions
