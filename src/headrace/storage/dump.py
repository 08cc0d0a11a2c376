"""Reads the files of a partition or a data folder, one row per batch, record or entry.

Nothing is changed, and damage is a row like any other. Every row has `file` and `type`; the other
columns of a type are in COLUMNS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

from headrace.protocol.batch import BatchHeader, InvalidBatch, iter_records
from headrace.protocol.compression import Codec
from headrace.protocol.control import parse_marker
from headrace.protocol.logs import (
    consumer_groups,
    consumer_offsets,
    read_key,
    read_prefix,
    read_versioned,
    transaction_state,
)
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record
from headrace.protocol.schema import Message
from headrace.storage import names
from headrace.storage.dirs import checkpoints
from headrace.storage.dirs.checkpoints import CorruptCheckpoint
from headrace.storage.files import Buffer, FileSystem
from headrace.storage.log import snapshots
from headrace.storage.log.scan import iter_salvaged
from headrace.storage.log.snapshots import CorruptSnapshot
from headrace.storage.log.sparse_index import CorruptIndex, OffsetIndex, SparseIndex, TimeIndex
from headrace.storage.log.txn_index import TxnIndex
from headrace.storage.os_files import OsFileSystem

Row = dict[str, object]
Rows = Iterator[Row]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "batch": (
        "position",
        "base_offset",
        "last_offset",
        "records",
        "size_bytes",
        "codec",
        "base_timestamp",
        "max_timestamp",
        "timestamp_type",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "leader_epoch",
        "transactional",
        "control",
        "delete_horizon_ms",
        "damage",
    ),
    "record": ("offset", "timestamp", "key", "value", "headers"),
    "index": ("offset", "position"),
    "timeindex": ("timestamp", "offset"),
    "txnindex": ("producer_id", "first_offset", "last_offset", "last_stable_offset"),
    "producer": ("producer_id", "epoch", "last_sequence", "last_offset", "last_timestamp"),
    "epoch": ("epoch", "start_offset"),
    "offset": ("topic", "partition", "offset"),
    "damage": ("position", "reason"),
}

CODEC_NAMES = {codec.value: codec.name.lower() for codec in Codec}

_CHECKPOINTS = frozenset(
    {
        checkpoints.RECOVERY_POINT,
        checkpoints.LOG_START,
        checkpoints.HIGH_WATERMARK,
        checkpoints.CLEANER,
    }
)


def dump(
    path: str, *, deep: bool = False, decode: str | None = None, fs: FileSystem | None = None
) -> Rows:
    """Rows of a file, or of every file in a folder and the folders below it.

    `deep` adds the records of each batch; `decode` (a key of DECODERS) shows the keys and values
    of an internal topic as what they mean.
    """
    files = fs or OsFileSystem(read_only=True)
    if files.is_dir(path):
        for name in sorted(files.list(path)):
            yield from dump(os.path.join(path, name), deep=deep, decode=decode, fs=files)
        return
    kind, rows = _reader(os.path.basename(path))
    if rows is None:
        return
    content = DECODERS[decode] if decode else _plain_content
    try:
        for row in rows(_Source(files, path, deep or decode is not None, content)):
            yield {"file": path, "type": kind, **row}
    except (CorruptIndex, CorruptSnapshot, CorruptCheckpoint) as error:
        yield {"file": path, "type": "damage", "position": None, "reason": str(error)}
    except FileNotFoundError:
        return  # deleted by a running broker since its folder was listed


class _Source:
    """A file to dump and how to show its records."""

    def __init__(
        self, fs: FileSystem, path: str, deep: bool, content: Callable[[Record], Row]
    ) -> None:
        self.fs = fs
        self.path = path
        self.deep = deep
        self.content = content

    @property
    def base_offset(self) -> int:
        return int(os.path.basename(self.path).partition(".")[0])

    def read(self) -> bytes:
        return self.fs.read(self.path)


def _reader(name: str) -> tuple[str, Callable[[_Source], Rows] | None]:
    """The type of a file's rows and what reads them, by the file's name."""
    if name in _CHECKPOINTS:
        return "offset", _offset_rows
    if name == names.EPOCHS:
        return "epoch", _epoch_rows
    while name.endswith(names.CORRUPT):
        name = name.removesuffix(names.CORRUPT)
    for suffix in ("", names.DELETED, names.CLEANED, names.SWAP):
        for ending, reader in _READERS.items():
            if names.parse_offset(name, ending + suffix) is not None:
                return reader
    return "", None


def _batch_rows(source: _Source) -> Rows:
    file = source.fs.open(source.path, size=source.fs.size(source.path))
    try:
        for found in iter_salvaged(file, file.size, source.base_offset):
            if found.header is None:
                reason = f"position {found.position}: {found.damage}"
                yield {"type": "damage", "position": found.position, "reason": reason}
                continue
            yield batch_row(found.position, found.header) | {"damage": found.damage}
            if source.deep and found.damage is None:
                yield from _record_rows(found.batch, found.header, source.content)
    finally:
        file.close()


def batch_row(position: int, header: BatchHeader) -> Row:
    """The header of a batch as a row."""
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size,
        "codec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.log_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
    }


def _record_rows(batch: Buffer, header: BatchHeader, content: Callable[[Record], Row]) -> Rows:
    try:
        for record in iter_records(batch):
            row = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
            if header.is_control:
                marker = parse_marker(batch)
                kind = marker.control_type.name if marker else "unknown"
                epoch = marker.coordinator_epoch if marker else None
                yield row | {"key": kind, "value": f"coordinator epoch {epoch}", "headers": {}}
            else:
                yield row | content(record)
    except InvalidBatch as error:
        yield {"type": "damage", "position": None, "reason": str(error)}


def _plain_content(record: Record) -> Row:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": {name: _text(value) for name, value in record.headers},
    }


def _text(data: bytes | None) -> str | None:
    """Bytes as text if they are text, else escaped."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _index_rows(source: _Source) -> Rows:
    for relative, position in index_entries(OffsetIndex, source.read()):
        yield {"offset": source.base_offset + relative, "position": position}


def _time_index_rows(source: _Source) -> Rows:
    for timestamp, relative in index_entries(TimeIndex, source.read()):
        yield {"timestamp": timestamp, "offset": source.base_offset + relative}


def index_entries(kind: type[SparseIndex], data: bytes) -> list[tuple[int, int]]:
    """The entries of an index file; raises CorruptIndex.

    Apache Kafka reserves space for an index in use: zeros at the end are not entries.
    """
    kind.entries_in(len(data))
    entries: list[tuple[int, int]] = list(kind.ENTRY.iter_unpack(data))
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


def _txn_index_rows(source: _Source) -> Rows:
    for entry in TxnIndex(source.fs, source.path, source.fs.size(source.path)).aborted:
        yield entry._asdict()


def _producer_rows(source: _Source) -> Rows:
    for producer in snapshots.decode(source.read()):
        yield {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
        }


def _epoch_rows(source: _Source) -> Rows:
    for epoch, start_offset in checkpoints.parse_epochs(source.read()):
        yield {"epoch": epoch, "start_offset": start_offset}


def _offset_rows(source: _Source) -> Rows:
    for (topic, partition), offset in checkpoints.parse_offsets(source.read()).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


_READERS: Mapping[str, tuple[str, Callable[[_Source], Rows]]] = {
    names.LOG: ("batch", _batch_rows),
    names.OFFSET_INDEX: ("index", _index_rows),
    names.TIME_INDEX: ("timeindex", _time_index_rows),
    names.TXN_INDEX: ("txnindex", _txn_index_rows),
    names.SNAPSHOT: ("producer", _producer_rows),
}


def _decoder(*modules: ModuleType) -> Callable[[Record], Row]:
    """Shows the records of an internal topic whose formats are in these modules."""
    messages = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Message)
    }
    pairs = {
        cls.API_KEY: (cls, messages[name.removesuffix("Key") + "Value"])
        for name, cls in messages.items()
        if name.endswith("Key")
    }

    def content(record: Record) -> Row:
        try:
            kind = read_prefix(record.key or b"")
            # Old logs have offset commits with key version 0.
            key_class, value_class = pairs.get(kind) or pairs[1]
            key: object = _plain(read_key(key_class, record.key or b""))
            value: object = None
            if record.value is not None:
                value = _plain(read_versioned(value_class, record.value))
        except (ProtocolError, KeyError):
            return _plain_content(record)
        name = key_class.__name__.removesuffix("Key")
        return {"key": {"type": name, **_dict(key)}, "value": value, "headers": {}}

    return content


def _plain(value: object) -> object:
    """A message as dicts, lists, numbers and text."""
    if isinstance(value, Message):
        return {field.name: _plain(getattr(value, field.name)) for field in type(value).FIELDS}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value


def _dict(value: object) -> Row:
    assert isinstance(value, dict)
    return value


DECODERS: Mapping[str, Callable[[Record], Row]] = {
    "offsets": _decoder(consumer_offsets, consumer_groups),
    "transactions": _decoder(transaction_state),
}
