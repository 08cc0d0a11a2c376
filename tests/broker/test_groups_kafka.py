"""Our `__consumer_offsets` read by Apache Kafka, and Apache Kafka's read by us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.apache_kafka import QUICK_JVM, ApacheKafka, java_tool
from tests.broker.apis.asking import Asker, with_broker
from tests.coordinator.clients import GROUP, GroupClient

from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.loading import Loader
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State


def test_kafka_reads_what_we_store(tmp_path: Path) -> None:
    members: list[str] = []

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        members.append(member_id)
        await client.commit({("t", 1): 42}, member_id, generation, metadata="né")
        await client.leave(member_id)

    settings: dict[str, object] = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with_broker(tmp_path, scenario, settings)
    (segment,) = tmp_path.glob("__consumer_offsets-0/*.log")
    printed = java_tool("dump-log", "--offsets-decoder", "--files", str(segment))
    decoded = []
    for line in printed.splitlines():
        if " payload: " in line:
            key, value = line.split(" key: ")[1].split(" payload: ")
            decoded.append((json.loads(key), json.loads(value)))
    assert [key["type"] for key, _ in decoded] == ["2", "1", "2"]
    stable, offset, empty = (value["data"] for _, value in decoded)
    assert decoded[1][0]["data"] == {"group": GROUP, "topic": "t", "partition": 1}
    assert (offset["offset"], offset["metadata"]) == (42, "né")
    assert (stable["generation"], stable["protocol"]) == (1, "range")
    assert [member["memberId"] for member in stable["members"]] == members
    assert (empty["generation"], empty["members"]) == (2, [])


@pytest.mark.long
def test_we_read_what_kafka_stores(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with ApacheKafka(data_dir=tmp_path, settings=settings, heap="256m", jvm=QUICK_JVM) as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result()
        consumer = Consumer(
            servers
            | {
                "group.id": GROUP,
                "group.instance.id": "one",
                "group.protocol": "classic",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition("t", 0, 11, "plain")], asynchronous=False)
        producer = Producer(servers | {"transactional.id": "tx"})
        producer.init_transactions()
        for partition, commit in ((1, True), (2, False)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition("t", partition, 22)], consumer.consumer_group_metadata()
            )
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        (segment,) = kafka.logs.glob("__consumer_offsets-0/*.log")
        loader = Loader()
        loader.feed(segment.read_bytes())
        consumer.close()
    coordinator = GroupCoordinator(GroupSettings(), lambda: "id")
    loader.replay_into(coordinator)
    group = coordinator.groups[GROUP]
    assert group.state is State.STABLE
    assert list(group.instances) == ["one"]
    assert group.subscribed == frozenset({"t"})
    offsets = coordinator.offsets.of_group(GROUP)["t"]
    assert {partition: commit.offset for partition, commit in offsets.items()} == {0: 11, 1: 22}
    assert offsets[0].metadata.rstrip("\0") == "plain", "librdkafka counts the terminating zero"
