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
from typing import TYPE_CHECKING, ClassVar

from headrace.broker.produce_templates import CORRELATION_AT, INT, REMEMBERED_AT, TEMPLATES_MAX
from headrace.coordinator.commit_record_templates import (
    EPOCH_HOLE,
    OFFSET_AND_EPOCH,
    OFFSET_HOLE,
    CommitRecordTemplate,
    NoTemplate,
    split,
)
from headrace.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.codec import encode
from headrace.protocol.compression import Codec
from headrace.protocol.error_responses import failed_response, refused
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.broker.router import Route

# Above this many partitions a template would keep more in memory than it is worth.
PARTITIONS_MAX = 1_000


class CommitTemplate:
    """One commit as one connection repeats it."""

    __slots__ = ("_request", "frame", "pieces", "records", "unpack", "witnesses")

    def __init__(
        self, node: Node, route: Route, request: OffsetCommitRequest, body: bytes, before: bytes
    ) -> None:
        shard = node.groups.shard_of(request.group_id)
        self.records: CommitRecordTemplate = shard.coordinator.commits.template_of(request)
        self._request = request
        # A topic's partitions are deleted together, so one of each topic is enough to notice.
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
        # The response to a commit that succeeded.
        self.frame = route.frame(0, self.response())

    def response(self) -> OffsetCommitResponse:
        """The response to a commit that succeeded, as a message."""
        return failed_response(self._request, OffsetCommitResponse, None, ErrorCode.NONE)


class CommitTemplates:
    """The fast path of OffsetCommit for one connection and version."""

    # The first version whose offsets have leader epochs, and none has a retention of its own.
    VERSION_MIN: ClassVar[int] = 6

    __slots__ = ("_by_size", "_node", "_route", "learnt")

    def __init__(self, node: Node, route: Route) -> None:
        self._node = node
        self._route = route
        # By the size of the whole request: a consumer commits as one member of one group.
        self._by_size: dict[int, CommitTemplate] = {}
        self.learnt = 0

    def take(
        self, connection: Connection, view: memoryview, start: int, end: int, started_ns: int
    ) -> bool:
        """Store a commit that fits a template; respond when it is durable."""
        template = self._by_size.get(end - start)
        if template is None:
            return False
        values = template.unpack(view, start + REMEMBERED_AT)
        if values[::3] != template.pieces:
            return False
        for partition in template.witnesses:
            if partition.deleted:
                return False
        records = template.records
        try:
            shard = self._node.groups.shard_of(records.group_id)
        except KafkaError:
            return False  # decoding it leads to the same error, and a response
        route = self._route
        if not shard.takes(records, route.version):
            return False
        (correlation_id,) = INT.unpack_from(view, start + CORRELATION_AT)
        slot = connection.respond_later(blocks=False)

        def on_durable(error: ErrorCode) -> None:
            if error:
                frame = route.frame(correlation_id, refused(template.response(), error))
            else:
                frame = template.frame[:]
                INT.pack_into(frame, CORRELATION_AT, correlation_id)
            slot.send([frame])
            route.record_ns(perf_counter_ns() - started_ns)

        shard.commit_from_template(records, values[1::3], values[2::3], on_durable)
        return True

    def learn(
        self, request: OffsetCommitRequest, view: memoryview, start: int, body: int, end: int
    ) -> None:
        """Make a template of a commit of which every offset was stored."""
        if self.learnt >= TEMPLATES_MAX or self._node.groups.codec != Codec.NONE:
            return
        if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
            return
        version = self._route.version
        if encode(request, version) != view[body:end]:
            return  # a part was refused, or the client encodes it differently
        self.learnt += 1
        for topic in request.topics:
            for partition in topic.partitions:
                partition.committed_offset = OFFSET_HOLE
                partition.committed_leader_epoch = EPOCH_HOLE
        before = bytes(view[start + REMEMBERED_AT : body])
        try:
            template = CommitTemplate(
                self._node, self._route, request, encode(request, version), before
            )
        except (NoTemplate, KafkaError):
            return
        self._by_size[end - start] = template
