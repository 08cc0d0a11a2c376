"""Transactions that are left open, and one that nobody can end any more."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from headrace.cli.common.parsing import split_address
from headrace.client.wire.cluster import ClusterClient, CoordinatorOf
from headrace.client.wire.errors import refused
from headrace.client.wire.security import Security
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.records import Record

TIMEOUT_SECONDS = 60.0
# The last version in which a producer adds a partition to its transaction by a request of its own.
EXPLICIT_VERSION = 11


def begin(bootstrap: str, name: str, places: list[tuple[str, int]]) -> Producer:
    """A producer with a transaction that has a record in each of these partitions."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    for topic, partition in places:
        producer.produce(topic, b"in a transaction", partition=partition)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return producer


def hanging_batch(producer_id: int, epoch: int) -> bytearray:
    """A batch in a transaction that its producer has told nobody of."""
    return build_batch(
        [Record(0, round(time.time() * 1000), None, b"nobody ends this")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def leave_hanging(bootstrap: str, name: str, topic: str) -> int:
    """Write a record to partition 0 in a transaction that no coordinator knows; its producer.

    The broker must not ask the coordinator (transaction.partition.verification.enable=false), as
    those before KIP-890 did not.
    """
    host, port = split_address(bootstrap, "bootstrap")
    with ClusterClient([(host, port)], Security(), TIMEOUT_SECONDS) as cluster:
        made = cluster.ask_coordinator(
            CoordinatorOf.TRANSACTION,
            name,
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            lambda answer: (answer.error_code, None),
        )
        batch = hanging_batch(made.producer_id, made.producer_epoch)
        data = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        with cluster.connect(host, port) as wire:
            answer = wire.ask(request, ProduceResponse, EXPLICIT_VERSION)
    written = answer.responses[0].partition_responses[0]
    if written.error_code:
        raise refused(written.error_code)
    return made.producer_id
