"""Produce requests that look like one before: nothing is decoded but what differs.

A producer sends to a partition the same request again and again; only the correlation id and the
batch are new. So a connection remembers the bytes before the batch, together with what decoding
them came to: the partition, the acks, and the answer with holes for three offsets. A request whose
bytes are the same means the same; it takes the lane, which costs a fifth of decoding it and of
encoding its answer. Everything else, and everything that goes wrong, takes the ordinary way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from headrace.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from headrace.protocol.primitives import ZERO_UUID
from headrace.storage import AppendInfo

if TYPE_CHECKING:
    from headrace.broker.partition import Partition, Partitions
    from headrace.broker.router import Route

# The first version whose answer has the log start offset, and which knows zstd.
VERSION_MIN = 7
# How many lanes a connection lays in its life. A client whose requests never look alike stops
# paying for lanes that it will not take.
LANES_MAX = 256
# Key, version and correlation id stand before what is remembered.
REMEMBERED_AT = 8
CORRELATION_AT = 4

LENGTH = Struct(">i")
OFFSETS = Struct(">qqq")
HOLES = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)


class Lane:
    """One partition as one connection writes to it."""

    __slots__ = ("_holes_at", "_template", "acks", "config", "partition", "request")

    def __init__(self, route: Route, request: ProduceRequest, partition: Partition) -> None:
        self.request = request
        self.acks = request.acks
        self.partition = partition
        # The topic's settings when the lane was laid; under others it may not be taken.
        self.config = partition.log.config
        template = bytearray(route.prefix)
        route.encode(self.response(AppendInfo(HOLES[0], 0, HOLES[1], HOLES[2])), template)
        LENGTH.pack_into(template, 0, len(template) - LENGTH.size)
        self._holes_at = template.index(OFFSETS.pack(*HOLES))
        self._template = template

    def frame(self, correlation_id: int, info: AppendInfo) -> bytearray:
        """The whole answer to a produce that succeeded."""
        frame = self._template[:]
        LENGTH.pack_into(frame, CORRELATION_AT, correlation_id)
        OFFSETS.pack_into(
            frame, self._holes_at, info.base_offset, info.append_time_ms, info.start_offset
        )
        return frame

    def response(self, info: AppendInfo) -> ProduceResponse:
        """The same answer as a message, for one that has to wait or goes wrong."""
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


class Lanes:
    """The lanes of one connection, for one version of Produce."""

    __slots__ = ("_by_size", "_flexible", "_laid", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self._flexible = route.version >= ProduceRequest.FLEXIBLE
        # By the number of bytes remembered: as many as there are lengths of topic names.
        self._by_size: dict[int, dict[bytes, Lane]] = {}
        self._laid = 0

    def find(self, view: memoryview, start: int, end: int) -> tuple[Lane, memoryview] | None:
        """The lane of a request and its batch, if it looks like one before."""
        begin = start + REMEMBERED_AT
        for size, lanes in self._by_size.items():
            stop = begin + size
            if end - stop <= HEADER_BYTES:
                continue  # no room for a batch
            lane = lanes.get(bytes(view[begin:stop]))
            if lane is None:
                continue
            partition = lane.partition
            if partition.deleted or partition.log.config is not lane.config:
                return None
            if self._flexible:
                batch = _compact_batch(view, stop, end)
            else:
                (length,) = LENGTH.unpack_from(view, stop)
                at = stop + LENGTH.size
                batch = view[at:end] if at + length == end else None
            if batch is None or len(batch) < HEADER_BYTES:
                return None  # not as it was after all: decoding will say what it is
            # What is transactional belongs to the coordinator, not to the lane.
            return None if batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT else (lane, batch)
        return None

    def learn(
        self,
        request: ProduceRequest,
        partitions: Partitions,
        view: memoryview,
        start: int,
        end: int,
    ) -> None:
        """Lay a lane for requests that look like this one, if it is of the common kind."""
        if self._laid >= LANES_MAX or len(request.topic_data) != 1:
            return
        if request.transactional_id is not None:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1 or request.acks == 0:
            return
        (data,) = topic.partition_data
        name = partitions.name_of(topic.topic_id) if topic.topic_id != ZERO_UUID else topic.name
        partition = partitions.get(name, data.index) if name else None
        if partition is None or not partition.takes_lanes or data.records is None:
            return
        # The batch and what is behind it are the end of the frame: what is before is remembered.
        length = len(data.records)
        begin = start + REMEMBERED_AT
        if self._flexible:
            stop = end - len(TAGS) - length - uvarint_size(length + 1)
            alike = stop > begin and _compact_batch(view, stop, end) == data.records
        else:
            stop = end - length - LENGTH.size
            alike = stop > begin and LENGTH.unpack_from(view, stop) == (length,)
        if alike:
            data.records = None  # the receive buffer is used again
            self._laid += 1
            lanes = self._by_size.setdefault(stop - begin, {})
            lanes[bytes(view[begin:stop])] = Lane(self.route, request, partition)


# Behind the batch, flexible versions have the empty tags of partition, topic and request.
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
