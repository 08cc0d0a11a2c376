"""`.snapshot`: the producers of a log at an offset, in Apache Kafka's format with its CRC-32C.

Kafka keeps only the last batch of each producer there. The other four that a producer may still
repeat go to a `.batches` file beside it, so that a retry across a clean restart is recognised as
well; Kafka ignores that file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from headrace.storage import names
from headrace.storage.files import FileSystem
from headrace.storage.log.producers import NO_SEQUENCE, Producer, Producers, RememberedBatch

_HEAD = Struct(">hIi")  # version, crc, number of entries; the crc covers what follows it
_CRC_COVERS_FROM = 6
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1
_SEQUENCE_MASK = (1 << 31) - 1

_RECENT_HEAD = Struct(">hIi")
_RECENT = Struct(">qhiiqqq")


class CorruptSnapshot(ValueError):
    """A snapshot that is torn, of another version, or whose checksum differs."""


class _Frozen(NamedTuple):
    """A copy of a Producer at one moment."""

    producer_id: int
    epoch: int
    batches: tuple[RememberedBatch, ...]
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class Snapshot:
    """The producers at an offset, copied fast, to be encoded on another thread."""

    __slots__ = ("_offset", "_producers")

    def __init__(self, offset: int, producers: Producers) -> None:
        self._offset = offset
        self._producers = [
            _Frozen(
                producer.producer_id,
                producer.epoch,
                tuple(producer.batches),
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer in producers
        ]

    def contents(self, folder: str) -> dict[str, bytes]:
        """Paths and contents of its files."""
        return contents(folder, self._offset, self._producers)


def encode(producers: Iterable[Producer | _Frozen]) -> bytes:
    """The content of a `.snapshot` file."""
    parts = []
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        parts.append(
            _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        )
    return _seal(_HEAD, parts)


def decode(data: bytes) -> list[Producer]:
    """The producers of a `.snapshot` file; raises CorruptSnapshot."""
    producers = []
    for fields in _unseal(_HEAD, _ENTRY, data):
        pid, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = fields
        producer = Producer(pid, epoch)
        if last_sequence != NO_SEQUENCE:
            first_sequence = (last_sequence - delta) & _SEQUENCE_MASK
            producer.remember(first_sequence, last_offset - delta, last_offset, timestamp)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator
        producer.txn_first_offset = first
        producers.append(producer)
    return producers


def encode_recent(producers: Iterable[Producer | _Frozen]) -> bytes:
    """The content of a `.batches` file: all remembered batches but the last of each producer."""
    return _seal(
        _RECENT_HEAD,
        [
            _RECENT.pack(producer.producer_id, producer.epoch, *batch)
            for producer in producers
            for batch in producer.batches[:-1]
        ],
    )


def merge_recent(producers: list[Producer], data: bytes) -> None:
    """Give producers of a snapshot their earlier batches back; raises CorruptSnapshot."""
    by_id = {producer.producer_id: producer for producer in producers}
    earlier: dict[int, list[RememberedBatch]] = {}
    for pid, epoch, *batch in _unseal(_RECENT_HEAD, _RECENT, data):
        if pid in by_id and by_id[pid].epoch == epoch:
            earlier.setdefault(pid, []).append(RememberedBatch(*batch))
    for pid, batches in earlier.items():
        by_id[pid].batches[:0] = batches


def _seal(head: Struct, parts: list[bytes]) -> bytes:
    data = bytearray(head.pack(_VERSION, 0, len(parts)) + b"".join(parts))
    head.pack_into(data, 0, _VERSION, crc32c(data[_CRC_COVERS_FROM:]), len(parts))
    return bytes(data)


def _unseal(head: Struct, entry: Struct, data: bytes) -> list[tuple[int, ...]]:
    try:
        version, crc, count = head.unpack_from(data)
    except StructError:
        raise CorruptSnapshot("shorter than its header") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    if crc32c(data[_CRC_COVERS_FROM:]) != crc:
        raise CorruptSnapshot("checksum differs")
    if len(data) != head.size + count * entry.size:
        raise CorruptSnapshot(f"{count} entries do not fill {len(data)} bytes")
    return list(entry.iter_unpack(data[head.size :]))


def contents(
    folder: str, offset: int, producers: Collection[Producer | _Frozen] | Producers
) -> dict[str, bytes]:
    """Paths and contents of the snapshot at an offset."""
    stem = os.path.join(folder, names.offset_name(offset, ""))
    files = {stem + names.SNAPSHOT: encode(producers)}
    if any(len(producer.batches) > 1 for producer in producers):
        files[stem + names.RECENT_BATCHES] = encode_recent(producers)
    return files


def offsets(present: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among some file names, ascending."""
    found = (names.parse_offset(name, names.SNAPSHOT) for name in present)
    return sorted(offset for offset in found if offset is not None)


def remove(fs: FileSystem, folder: str, present: Iterable[str], old: Collection[int]) -> None:
    """Remove the snapshots of some offsets; one that is gone by then is no matter."""
    for name in present:
        for suffix in (names.SNAPSHOT, names.RECENT_BATCHES):
            if names.parse_offset(name, suffix) in old:
                with contextlib.suppress(FileNotFoundError):
                    fs.remove(os.path.join(folder, name))


def read(fs: FileSystem, folder: str, offset: int) -> list[Producer]:
    """The producers of the snapshot at an offset; raises CorruptSnapshot or OSError."""
    path = os.path.join(folder, names.offset_name(offset, names.SNAPSHOT))
    producers = decode(fs.read(path))
    recent = os.path.join(folder, names.offset_name(offset, names.RECENT_BATCHES))
    if producers and fs.exists(recent):
        merge_recent(producers, fs.read(recent))
    return producers
