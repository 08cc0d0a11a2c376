"""A commit that differs from an earlier one in nothing but its offsets.

A consumer commits the same partitions again and again. What the records of such a commit have in
common is encoded once; the next ones are a batch with holes, filled by one call of `struct`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from headrace.coordinator.records import Commit, OffsetChange, encode
from headrace.protocol.api.offset_commit import OffsetCommitRequest
from headrace.protocol.batch import ATTRIBUTES_AT, build_batch, seal
from headrace.protocol.records import Record

# What stands for an offset, a leader epoch and a time until they are known.
OFFSET_HOLE = 0x6F66667365743F21
EPOCH_HOLE = 0x45706F63
TIME_HOLE = 0x74696D653F212121
OFFSET_AND_EPOCH = Struct(">qi")
TIME = Struct(">q")
# What is packed: bytes and a time, twice (the header's), then for every commit bytes, offset,
# epoch, bytes and time, then the bytes of the end.
FIRST_TIME, LAST_TIME, OFFSETS, EPOCHS, TIMES, PER_COMMIT = 1, 3, 5, 6, 8, 5


class NotRepeatable(Exception):
    """A commit of which no form can be made: it takes the ordinary way."""


class RepeatedCommit:
    """The form of a commit: whose it is, of which partitions, and its batch with holes."""

    __slots__ = (
        "_arguments",
        "_head",
        "_pack",
        "count",
        "generation",
        "group_id",
        "instance_id",
        "member_id",
        "places",
    )

    def __init__(self, request: OffsetCommitRequest) -> None:
        self.group_id = request.group_id
        self.member_id = request.member_id
        self.instance_id = request.group_instance_id
        self.generation = request.generation_id_or_member_epoch
        # Topic, partition and metadata of every offset, in the order of the request.
        self.places = [
            (topic.name, partition.partition_index, partition.committed_metadata or "")
            for topic in request.topics
            for partition in topic.partitions
        ]
        self.count = len(self.places)
        self._lay_out()

    def _lay_out(self) -> None:
        records = [
            Record(
                number,
                TIME_HOLE,
                *encode(
                    OffsetChange(
                        self.group_id,
                        topic,
                        partition,
                        Commit(OFFSET_HOLE, EPOCH_HOLE, metadata, TIME_HOLE),
                    )
                ),
            )
            for number, (topic, partition, metadata) in enumerate(self.places)
        ]
        batch = bytes(build_batch(records))
        self._head = batch[:ATTRIBUTES_AT]
        number, time = OFFSET_AND_EPOCH.pack(OFFSET_HOLE, EPOCH_HOLE), TIME.pack(TIME_HOLE)
        holes = [time, time]
        for _ in records:
            holes += [number, time]
        pieces = split(batch, ATTRIBUTES_AT, holes)
        layout = ""
        arguments: list[bytes | int] = []
        for piece, hole in zip(pieces, [*holes, b""], strict=True):
            layout += f"{len(piece)}s" + {number: "qi", time: "q"}.get(hole, "")
            arguments += [piece, *bytes({number: 2, time: 1}.get(hole, 0))]
        self._pack = Struct(f">{layout}").pack
        self._arguments = arguments

    def batch(self, offsets: Sequence[int], epochs: Sequence[int], now_ms: int) -> bytearray:
        """The records of a commit of these offsets, as one batch."""
        arguments = self._arguments
        arguments[FIRST_TIME] = arguments[LAST_TIME] = now_ms
        arguments[OFFSETS::PER_COMMIT] = offsets
        arguments[EPOCHS::PER_COMMIT] = epochs
        arguments[TIMES::PER_COMMIT] = [now_ms] * self.count
        batch = bytearray(self._head)
        batch += self._pack(*arguments)
        seal(batch, 0)
        return batch


def split(data: bytes, start: int, holes: Sequence[bytes]) -> list[bytes]:
    """The pieces of `data` between these holes, each found behind the one before it."""
    pieces = []
    for hole in holes:
        at = data.find(hole, start)
        if at < 0:
            raise NotRepeatable
        pieces.append(data[start:at])
        start = at + len(hole)
    pieces.append(data[start:])
    return pieces
