"""Produce requests that repeat an earlier one: only the batch is looked at.

A producer sends the same request to a partition again and again; only the correlation id and the
batch differ. So a connection remembers the bytes before the batch, together with what they mean:
the partition, the acks, and the response with holes for three offsets. A request with the same
bytes means the same. This costs a fifth of decoding the request and encoding its response. Every
other request is decoded as usual.
"""

from __future__ import annotations

from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, ClassVar

from headrace.broker.purgatory import Pending, SyncedResponse
from headrace.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from headrace.protocol.error_responses import refuse_batch
from headrace.protocol.errors import KafkaError
from headrace.protocol.primitives import ZERO_UUID
from headrace.storage import AppendInfo

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition
    from headrace.broker.router import Route

# How many templates a connection may learn. A client whose requests never repeat stops paying for
# templates that it does not use.
TEMPLATES_MAX = 256
# The place of the correlation id in a request, after its length, and in the frame of a response.
CORRELATION_AT = 4
# In a request, a template remembers what follows the correlation id.
REMEMBERED_AT = 8

ACKS_ALL = -1
NOT_APPENDED = AppendInfo(-1, -1, -1, -1)
INT = Struct(">i")
OFFSETS = Struct(">qqq")
HOLES = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)


class ProduceTemplate:
    """One partition as one connection writes to it."""

    __slots__ = ("_holes_at", "_response", "acks", "config", "partition", "request")

    def __init__(self, route: Route, request: ProduceRequest, partition: Partition) -> None:
        self.request = request
        self.acks = request.acks
        self.partition = partition
        # The topic's settings when the template was learnt; it does not hold under others.
        self.config = partition.log.config
        holes = AppendInfo(HOLES[0], 0, HOLES[1], HOLES[2])
        self._response = route.frame(0, self.response(holes))
        self._holes_at = self._response.index(OFFSETS.pack(*HOLES))

    def frame(self, correlation_id: int, info: AppendInfo) -> bytearray:
        """The frame of the response to a produce that succeeded."""
        frame = self._response[:]
        INT.pack_into(frame, CORRELATION_AT, correlation_id)
        OFFSETS.pack_into(
            frame, self._holes_at, info.base_offset, info.append_time_ms, info.start_offset
        )
        return frame

    def response(self, info: AppendInfo) -> ProduceResponse:
        """The same response as a message, for a produce that has to wait or fails."""
        (topic,) = self.request.topic_data
        result = PartitionProduceResponse(
            index=topic.partition_data[0].index,
            base_offset=info.base_offset,
            log_append_time_ms=info.append_time_ms,
            log_start_offset=info.start_offset,
        )
        part = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
        )
        return ProduceResponse(responses=[part])


class ProduceTemplates:
    """The fast path of Produce for one connection and version."""

    # The first version whose response has the log start offset, and which knows zstd.
    VERSION_MIN: ClassVar[int] = 7

    __slots__ = ("_by_size", "_flexible", "_node", "_route", "learnt")

    def __init__(self, node: Node, route: Route) -> None:
        self._node = node
        self._route = route
        self._flexible = route.version >= ProduceRequest.FLEXIBLE
        # By the number of bytes remembered: as many as there are lengths of topic names.
        self._by_size: dict[int, dict[bytes, ProduceTemplate]] = {}
        self.learnt = 0

    def take(
        self, connection: Connection, view: memoryview, start: int, end: int, started_ns: int
    ) -> bool:
        """Append the batch of a request that fits a template, and respond."""
        begin = start + REMEMBERED_AT
        for size, templates in self._by_size.items():
            stop = begin + size
            if end - stop <= HEADER_BYTES:
                continue  # no room for a batch
            template = templates.get(bytes(view[begin:stop]))
            if template is None:
                continue
            partition = template.partition
            if partition.deleted or partition.log.config is not template.config:
                return False
            if self._flexible:
                batch = _compact_batch(view, stop, end)
            else:
                (length,) = INT.unpack_from(view, stop)
                at = stop + INT.size
                batch = view[at:end] if at + length == end else None
            if batch is None or len(batch) < HEADER_BYTES:
                return False  # malformed: decoding finds out how
            if batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
                return False  # the transaction's coordinator must be asked
            (correlation_id,) = INT.unpack_from(view, start + CORRELATION_AT)
            self._append(connection, template, batch, correlation_id, started_ns)
            return True
        return False

    def _append(
        self,
        connection: Connection,
        template: ProduceTemplate,
        batch: memoryview,
        correlation_id: int,
        started_ns: int,
    ) -> None:
        partition = template.partition
        route = self._route
        try:
            info = partition.append(batch, self._node.clock.now_ms())
        except KafkaError as error:
            response = template.response(NOT_APPENDED)
            refuse_batch(response.responses[0].partition_responses[0], error.code, error.message)
            connection.respond(route.frame(correlation_id, response))
            return
        if template.acks == ACKS_ALL and partition.log.high_watermark <= info.last_offset:
            response = template.response(info)
            target = (partition, info.last_offset + 1, response.responses[0].partition_responses[0])
            pending = Pending(blocks=False)
            waiting = SyncedResponse([target], response, pending, refuse_batch)
            waiting.park(self._node, max(template.request.timeout_ms, 0))
            route.respond_later(connection, correlation_id, pending, started_ns)
            return
        connection.respond(template.frame(correlation_id, info))
        route.record_ns(perf_counter_ns() - started_ns)

    def learn(
        self, request: ProduceRequest, view: memoryview, start: int, body: int, end: int
    ) -> None:
        """Make a template of a request with one batch, outside of transactions."""
        if self.learnt >= TEMPLATES_MAX or len(request.topic_data) != 1:
            return
        if request.transactional_id is not None:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1 or request.acks == 0:
            return
        (data,) = topic.partition_data
        partitions = self._node.partitions
        name = partitions.name_of(topic.topic_id) if topic.topic_id != ZERO_UUID else topic.name
        partition = partitions.get(name, data.index) if name else None
        if partition is None or not partition.allows_templates or data.records is None:
            return
        # The batch, and the tags after it, end the frame: what is before is remembered.
        length = len(data.records)
        begin = start + REMEMBERED_AT
        if self._flexible:
            stop = end - len(TAGS) - length - uvarint_size(length + 1)
            alike = stop > begin and _compact_batch(view, stop, end) == data.records
        else:
            stop = end - length - INT.size
            alike = stop > begin and INT.unpack_from(view, stop) == (length,)
        if alike:
            data.records = None  # the receive buffer is used again
            self.learnt += 1
            templates = self._by_size.setdefault(stop - begin, {})
            template = ProduceTemplate(self._route, request, partition)
            templates[bytes(view[begin:stop])] = template


# After the batch, flexible versions have the empty tags of partition, topic and request.
TAGS = bytes(3)


def _compact_batch(view: memoryview, at: int, end: int) -> memoryview | None:
    """The batch whose compact length is at `at`, if it and three empty tags fill the frame."""
    size = view[at]
    at += 1
    if size >= 0x80:
        size = size & 0x7F | view[at] << 7
        at += 1
        if size >= 0x4000:
            size = size & 0x3FFF | view[at] << 14
            at += 1
            if size >= 0x200000:
                return None  # above 2 MB the cost of decoding does not matter
    stop = at + size - 1
    if stop + len(TAGS) != end or view[stop:end] != TAGS:
        return None
    return view[at:stop]


def uvarint_size(number: int) -> int:
    """How many bytes a number takes as an unsigned varint."""
    return max(1, (number.bit_length() + 6) // 7)
