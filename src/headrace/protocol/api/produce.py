"""Produce (key 0), v0-13: batches to append, one per partition.

v1: throttle time. v2: log append time. v3: batch format 2, transactional id. v4:
KAFKA_STORAGE_ERROR may come back. v5: log start offset. v7: zstd. v8: errors by record. v9:
flexible. v10: the new leader and its address come with an error (KIP-951). v11:
TRANSACTION_ABORTABLE. v12: a partition joins the transaction by being produced to (KIP-890). v13:
topic ids instead of names.
"""

from __future__ import annotations

from headrace.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from headrace.protocol.schema import (
    Message,
    array,
    batches,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Message):
    index: int = int32()
    records: memoryview | None = batches(nullable="0+")


class TopicProduceData(Message):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, key=0, versions="0-13", flexible=9):
    transactional_id: str | None = string("3+", nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class PartitionProduceResponse(Message):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, key=0, versions="0-13", flexible=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
