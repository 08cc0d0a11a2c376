"""Offset commits that repeat an earlier one: only the offsets are decoded.

A consumer commits the same partitions again and again; only the correlation id, the offsets and
their leader epochs differ. So a connection remembers the bytes of a commit with holes in these
places, a template of its records, and the whole response. A request whose bytes are equal outside
the holes means the same, and costs about as much for fifty partitions as for one. Every other
request, and every error, is decoded as usual.
"""

from __future__ import annotations

from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.produce_templates import CORRELATION_AT, LANES_MAX, LENGTH, REMEMBERED_AT
from headrace.coordinator.commit_record_templates import (
    EPOCH_HOLE,
    OFFSET_AND_EPOCH,
    OFFSET_HOLE,
    CommitRecordTemplate,
    NoTemplate,
    split,
)
from headrace.coordinator.refusals import refused
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.codec import encode
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Reply
    from headrace.broker.node import Node
    from headrace.broker.router import Route

# The first version whose offsets have leader epochs; none from it on has a retention of its own.
VERSION_MIN = 6
# Above this many partitions what a lane would keep in memory is too much for what it saves.
PARTITIONS_MAX = 1_000


class CommitLane:
    """One commit as one connection repeats it."""

    __slots__ = ("answer", "pieces", "records", "request", "unpack", "witnesses")

    def __init__(
        self, node: Node, route: Route, request: OffsetCommitRequest, body: bytes, before: bytes
    ) -> None:
        shard = node.groups.shard_of(request.group_id)
        self.records: CommitRecordTemplate = shard.coordinator.commits.template_of(request)
        self.request = request
        # A topic's partitions are deleted all together: one of each tells.
        found = [
            node.partitions.get(topic.name, topic.partitions[0].partition_index)
            for topic in request.topics
            if topic.partitions
        ]
        self.witnesses = [partition for partition in found if partition is not None]
        if len(self.witnesses) != len(request.topics):
            raise NoTemplate
        hole = OFFSET_AND_EPOCH.pack(OFFSET_HOLE, EPOCH_HOLE)
        pieces = split(before + body, 0, [hole] * self.records.count)
        self.pieces = tuple(pieces)
        self.unpack = Struct(">" + "qi".join(f"{len(piece)}s" for piece in pieces)).unpack_from
        answer = bytearray(route.prefix)
        route.encode(self.response(), answer)
        LENGTH.pack_into(answer, 0, len(answer) - LENGTH.size)
        self.answer = answer

    def response(self) -> OffsetCommitResponse:
        """The answer to a commit that succeeded, as a message."""
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=partition.partition_index)
                        for partition in topic.partitions
                    ],
                )
                for topic in self.request.topics
            ]
        )


class CommitLanes:
    """The lanes of one connection, for one version of OffsetCommit."""

    __slots__ = ("_by_size", "_laid", "_node", "route")

    def __init__(self, node: Node, route: Route) -> None:
        self._node = node
        self.route = route
        # By the size of the whole request: a consumer commits as one member of one group.
        self._by_size: dict[int, CommitLane] = {}
        self._laid = 0

    def take(
        self, connection: Connection, view: memoryview, start: int, end: int, started_ns: int
    ) -> bool:
        """Serve a commit if it looks like one before; answered when it is durable."""
        lane = self._by_size.get(end - start)
        if lane is None:
            return False
        values = lane.unpack(view, start + REMEMBERED_AT)
        if values[::3] != lane.pieces:
            return False
        for partition in lane.witnesses:
            if partition.deleted:
                return False
        records = lane.records
        try:
            shard = self._node.groups.shard_of(records.group_id)
        except KafkaError:
            return False  # the ordinary way will say why
        if not shard.takes(records, self.route.version):
            return False
        (correlation_id,) = LENGTH.unpack_from(view, start + CORRELATION_AT)
        reply = connection.answer_later(holds_line=False)

        def landing(error: ErrorCode) -> None:
            self._answer(lane, correlation_id, reply, error)
            self.route.record_ns(perf_counter_ns() - started_ns)

        shard.commit_from_template(records, values[1::3], values[2::3], landing)
        return True

    def _answer(
        self, lane: CommitLane, correlation_id: int, reply: Reply, error: ErrorCode
    ) -> None:
        if error:
            answer = bytearray(self.route.prefix)
            self.route.encode(refused(lane.response(), error), answer)
            LENGTH.pack_into(answer, 0, len(answer) - LENGTH.size)
        else:
            answer = lane.answer[:]
        LENGTH.pack_into(answer, CORRELATION_AT, correlation_id)
        reply.send([answer])

    def learn(
        self, request: OffsetCommitRequest, view: memoryview, start: int, body: int, end: int
    ) -> None:
        """Lay a lane for commits that look like this one, if it is of the common kind."""
        if self._laid >= LANES_MAX or self._node.groups.codec != Codec.NONE:
            return
        if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
            return
        if encode(request, self.route.version) != view[body:end]:
            return  # something of it was refused, or is not written as we would write it
        self._laid += 1
        for topic in request.topics:
            for partition in topic.partitions:
                partition.committed_offset = OFFSET_HOLE
                partition.committed_leader_epoch = EPOCH_HOLE
        before = bytes(view[start + REMEMBERED_AT : body])
        template = encode(request, self.route.version)
        try:
            lane = CommitLane(self._node, self.route, request, template, before)
        except (NoTemplate, KafkaError):
            return
        self._by_size[end - start] = lane
