"""Templates of the records of a commit: a repeated commit differs only in its offsets.

A consumer commits the same partitions again and again. The common bytes of the records are encoded
once; the next commits fill the holes by one call of `struct`. Commits that arrive together share a
batch, even of several groups: fewer batches are faster to write, sync and load.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from headrace.coordinator.records import Commit, OffsetChange, encode
from headrace.protocol.api.offset_commit import OffsetCommitRequest
from headrace.protocol.batch import HEADER_BYTES, frame_records
from headrace.protocol.records import Record, encode_records

# Placeholders for an offset, a leader epoch and a time.
OFFSET_HOLE = 0x6F66667365743F21
EPOCH_HOLE = 0x45706F63
TIME_HOLE = 0x74696D653F212121
OFFSET_AND_EPOCH = Struct(">qi")
TIME = Struct(">q")
# In a batch of up to this many records every offset delta takes one byte, which can be filled in.
SHARED_RECORDS_MAX = 64


class NoTemplate(Exception):
    """No template can be made of a commit: it is decoded as usual."""


class CommitRecordTemplate:
    """The template of a commit: its member, its partitions, and its records with holes."""

    __slots__ = (
        "_arguments",
        "_pack",
        "_step",
        "count",
        "generation",
        "group_id",
        "instance_id",
        "member_id",
        "places",
        "shares",
        "size",
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
        # Whether other commits may be in its batch.
        self.shares = self.count < SHARED_RECORDS_MAX
        self._lay_out()

    def _lay_out(self) -> None:
        # Packed for every record: bytes; if the batch is shared, its offset delta and more bytes;
        # offset, epoch, bytes and time. Last, the bytes at the end.
        self._step = 7 if self.shares else 5
        layout, rest = ">", b""
        arguments: list[bytes | int] = []
        for number, (topic, partition, metadata) in enumerate(self.places):
            commit = Commit(OFFSET_HOLE, EPOCH_HOLE, metadata, TIME_HOLE)
            key, value = encode(OffsetChange(self.group_id, topic, partition, commit))
            data = bytes(encode_records([Record(number, 0, key, value)], 0, 0)[0])
            if self.shares:
                # After the length, the attributes and the time delta, one byte each.
                at = next(at for at, byte in enumerate(data) if byte < 0x80) + 3
                layout += f"{len(rest) + at}sB"
                arguments += [rest + data[:at], 0]
                rest, data = b"", data[at + 1 :]
            holes = [OFFSET_AND_EPOCH.pack(OFFSET_HOLE, EPOCH_HOLE), TIME.pack(TIME_HOLE)]
            before, between, behind = split(data, 0, holes)
            layout += f"{len(rest) + len(before)}sqi{len(between)}sq"
            arguments += [rest + before, 0, 0, between, 0]
            rest = behind
        struct = Struct(f"{layout}{len(rest)}s")
        self._pack = struct.pack
        # The size of its records in bytes.
        self.size = struct.size
        self._arguments = [*arguments, rest]

    def records(
        self, offsets: Sequence[int], epochs: Sequence[int], now_ms: int, first: int = 0
    ) -> bytes:
        """The records of a commit of these offsets, as numbers `first` and on of a batch."""
        arguments, step = self._arguments, self._step
        if self.shares:
            arguments[1::step] = range(first << 1, first + self.count << 1, 2)  # in zigzag
        arguments[step - 4 :: step] = offsets
        arguments[step - 3 :: step] = epochs
        arguments[step - 1 :: step] = [now_ms] * self.count
        return self._pack(*arguments)


class CommitBatch:
    """Commits that are appended as one batch."""

    __slots__ = ("_records", "commits", "count", "now_ms", "size")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.count = 0
        self.size = HEADER_BYTES
        # The template, offsets and leader epochs of each.
        self.commits: list[tuple[CommitRecordTemplate, Sequence[int], Sequence[int]]] = []
        self._records: list[bytes] = []

    def takes(self, template: CommitRecordTemplate, size_max: int) -> bool:
        """Whether one more commit from this template fits in a batch of `size_max` bytes."""
        return (
            self.count + template.count <= SHARED_RECORDS_MAX
            and self.size + template.size <= size_max
        )

    def add(
        self, template: CommitRecordTemplate, offsets: Sequence[int], epochs: Sequence[int]
    ) -> None:
        """Add a commit."""
        self._records.append(template.records(offsets, epochs, self.now_ms, self.count))
        self.commits.append((template, offsets, epochs))
        self.count += template.count
        self.size += template.size

    def build(self) -> bytearray:
        """The batch as it is appended."""
        return frame_records(b"".join(self._records), self.count, self.now_ms)


def split(data: bytes, start: int, holes: Sequence[bytes]) -> list[bytes]:
    """The pieces of `data` between these holes, in order."""
    pieces = []
    for hole in holes:
        at = data.find(hole, start)
        if at < 0:
            raise NoTemplate
        pieces.append(data[start:at])
        start = at + len(hole)
    pieces.append(data[start:])
    return pieces
