"""Offset checkpoints and other small text files, in Apache Kafka's format, written atomically.

An offset checkpoint is a version line, a count line and one line `topic partition offset` for each
partition. Kafka's format has no checksum, so a flipped digit would go unnoticed: a folder with
checkpoints also has `checkpoints.crc32c` with the checksums that each file may have. It is written
before the checkpoint and has the old and the new checksum, so a crash between the two does no harm.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Container, Iterable, Mapping

from crc32c import crc32c

from headrace.storage.files import FileSystem

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
CHECKSUMS = "checkpoints.crc32c"

_VERSION = 0

Offsets = dict[tuple[str, int], int]


class CorruptCheckpoint(ValueError):
    """A checkpoint that is damaged."""


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    lines = [str(_VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes) -> Offsets:
    """The offsets of a checkpoint; raises CorruptCheckpoint if it is incomplete."""
    offsets: Offsets = {}
    for line in _rows(data):
        try:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(f"bad line {line!r}") from None
    return offsets


def format_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    rows = [f"{epoch} {start_offset}" for epoch, start_offset in epochs]
    return "\n".join([str(_VERSION), str(len(rows)), *rows, ""]).encode()


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """The (epoch, start offset) rows; raises CorruptCheckpoint if they cannot be right."""
    epochs: list[tuple[int, int]] = []
    for line in _rows(data):
        try:
            epoch, start_offset = map(int, line.split(" "))
        except ValueError:
            raise CorruptCheckpoint(f"bad line {line!r}") from None
        if epochs and (epoch <= epochs[-1][0] or start_offset < epochs[-1][1]):
            raise CorruptCheckpoint(f"epoch {epoch} is not above {epochs[-1][0]}")
        epochs.append((epoch, start_offset))
    return epochs


def _rows(data: bytes) -> list[str]:
    try:
        lines = data.decode("ascii").splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CorruptCheckpoint("no version and count lines") from None
    rows = [line for line in lines[2:] if line]
    if version != _VERSION:
        raise CorruptCheckpoint(f"version {version} is not {_VERSION}")
    if len(rows) != count:
        raise CorruptCheckpoint(f"{count} rows announced, {len(rows)} found")
    return rows


class CheckpointFolder:
    """The offset checkpoints of one log dir."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._checksums = self._read_checksums()
        # The content of the files, as last read or written; unsure after a failed write.
        self._rows: dict[str, Offsets] = {}
        self._unsure: set[str] = set()

    def read(self, name: str) -> Offsets:
        """A checkpoint's offsets, empty if it was never written; raises CorruptCheckpoint."""
        path = os.path.join(self._path, name)
        if not self._fs.exists(path):
            return {}
        data = self._fs.read(path)
        accepted = self._checksums.get(name)
        if accepted and crc32c(data) not in accepted:
            raise CorruptCheckpoint(f"{path}: checksum differs")
        self._checksums[name] = (crc32c(data),)
        self._rows[name] = parse_offsets(data)
        return dict(self._rows[name])

    def write(self, files: Mapping[str, Offsets]) -> None:
        """Write the checkpoints that changed; durable when this returns.

        Raises OSError; then each file has the old or the new rows, and either is accepted.
        """
        changed = {
            name: rows
            for name, rows in files.items()
            if self._rows.get(name) != rows or name in self._unsure
        }
        if not changed:
            return
        contents = {name: format_offsets(rows) for name, rows in changed.items()}
        checksums = self._checksums | {
            name: (*self._checksums.get(name, ()), crc32c(data)) for name, data in contents.items()
        }
        self._write_checksums(checksums)
        self._checksums = checksums
        for name, data in contents.items():
            self._unsure.add(name)
            self._fs.write_atomic(os.path.join(self._path, name), data)
            self._unsure.discard(name)
            self._checksums[name] = (crc32c(data),)
            self._rows[name] = dict(changed[name])

    def knows(self, key: tuple[str, int]) -> bool:
        """Whether a checkpoint has, or may have, a row of a partition."""
        return bool(self._unsure) or any(key in rows for rows in self._rows.values())

    def keep(self, keys: Container[tuple[str, int]]) -> None:
        """Drop the rows of all partitions but these; durable when this returns."""
        self.write(
            {
                name: {key: offset for key, offset in rows.items() if key in keys}
                for name, rows in self._rows.items()
            }
        )

    def forget(self, name: str) -> None:
        """Accept any content of a file from now on, since another writer replaces it."""
        self._rows.pop(name, None)
        if self._checksums.pop(name, None):
            self._write_checksums(self._checksums)

    def _write_checksums(self, accepted: Mapping[str, tuple[int, ...]]) -> None:
        rows = [
            " ".join([name, *(f"{checksum:08x}" for checksum in checksums)])
            for name, checksums in accepted.items()
        ]
        data = ("\n".join(rows) + "\n").encode()
        self._fs.write_atomic(
            os.path.join(self._path, CHECKSUMS), f"{crc32c(data):08x}\n".encode() + data
        )

    def _read_checksums(self) -> dict[str, tuple[int, ...]]:
        path = os.path.join(self._path, CHECKSUMS)
        if not self._fs.exists(path):
            return {}
        first, _, data = self._fs.read(path).partition(b"\n")
        try:
            if int(first, 16) != crc32c(data):
                return {}  # the checksums are damaged, not the files they guard
            rows = [line.split(" ") for line in data.decode("ascii").splitlines()]
            return {name: tuple(int(value, 16) for value in values) for name, *values in rows}
        except ValueError:
            return {}


def format_partition_metadata(topic_id: bytes) -> bytes:
    encoded = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {encoded}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    """The topic id; raises CorruptCheckpoint if the file has none."""
    try:
        rows = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines() if line)
        topic_id = base64.urlsafe_b64decode(rows["topic_id"] + "==")
        if rows["version"] != "0" or len(topic_id) != 16:
            raise ValueError(rows)
    except (ValueError, KeyError):
        raise CorruptCheckpoint("not a partition.metadata file") from None
    return topic_id
