"""Our `__transaction_state` read by Apache Kafka, and Apache Kafka's read by us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.apache_kafka import QUICK_JVM, ApacheKafka, java_tool
from tests.broker.apis.asking import Asker, with_broker
from tests.broker.transactional import Transactional

from headrace.coordinator.loading import Loader
from headrace.coordinator.transactions.records import decode
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode


def test_kafka_reads_what_we_store(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        producer = await Transactional(asker).start(timeout_ms=7_000)
        for committed in (True, False):
            for index in range(2):
                assert await producer.send("t", index, b"v") is ErrorCode.NONE
            assert await producer.end(committed) is ErrorCode.NONE
        assert await producer.add("t", 1) is ErrorCode.NONE

    with_broker(tmp_path, scenario, {"transaction.state.log.num.partitions": 1})
    (segment,) = tmp_path.glob("__transaction_state-0/*.log")
    printed = java_tool("dump-log", "--transaction-log-decoder", "--files", str(segment))
    decoded = [
        [json.loads(part)["data"] for part in line.split(" key: ")[1].split(" payload: ")]
        for line in printed.splitlines()
        if " payload: " in line
    ]
    assert all(key == {"transactionalId": "tx"} for key, _ in decoded)
    values = [value for _, value in decoded]
    states = [list(State)[value["transactionStatus"]] for value in values]
    over = [State.ONGOING, State.ONGOING]
    assert states == [
        State.EMPTY,
        *over,
        State.PREPARE_COMMIT,
        State.COMPLETE_COMMIT,
        *over,
        State.PREPARE_ABORT,
        State.COMPLETE_ABORT,
        State.ONGOING,
    ]
    assert [value["producerEpoch"] for value in values] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert values[3]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 1]}]
    assert values[0]["transactionPartitions"] is None
    assert {value["transactionTimeoutMs"] for value in values} == {7_000}
    segments = ",".join(map(str, tmp_path.glob("t-0/*.log")))
    data = java_tool("dump-log", "--print-data-log", "--files", segments)
    assert "endTxnMarker: COMMIT" in data
    assert "endTxnMarker: ABORT" in data


@pytest.mark.long
def test_we_read_what_kafka_stores(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "1"}
    with ApacheKafka(data_dir=tmp_path, settings=settings, heap="256m", jvm=QUICK_JVM) as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producers = []
        for name in ("committed", "aborted", "open"):
            producer = Producer(servers | {"transactional.id": name})
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("t", b"v")
            producer.flush()
            if name == "committed":
                producer.commit_transaction()
            elif name == "aborted":
                producer.abort_transaction()
            producers.append(producer)
        # An answered InitProducerId means that what came before it is complete.
        Producer(servers | {"transactional.id": "committed"}).init_transactions()
        (segment,) = kafka.logs.glob("__transaction_state-0/*.log")
        loader = Loader()
        loader.feed(segment.read_bytes())
    changes = [decode(key, value) for _, key, value in loader.left()]
    found = {
        change.transactional_id: change.transaction
        for change in changes
        if change is not None and change.transaction is not None
    }
    assert found["committed"].state is State.EMPTY
    assert found["committed"].producer_epoch == 1
    assert found["aborted"].state in (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    assert found["open"].state is State.ONGOING
    assert found["open"].partitions == {("t", 0)}
