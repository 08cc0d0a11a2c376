"""Offsets of a group in a file: CSV as Kafka's own kafka-consumer-groups writes it, or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from headrace.client.admin.errors import AdminError
from headrace.protocol.partitions import TopicPartition

FORMS = (
    "lines are topic,partition,offset or group,topic,partition,offset; JSON is a list of objects "
    "with topic, partition and offset"
)


def read_offsets(path: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets of a group in a file; lines that name another group are skipped."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise AdminError(f"cannot read {path}: {reason}") from None
    read = _read_json if text.lstrip()[:1] in ("[", "{") else _read_csv
    try:
        offsets = read(text, group)
    except (ValueError, KeyError, TypeError) as problem:
        raise AdminError(f"{path} is not a file of offsets: {problem}", FORMS) from None
    if not offsets:
        raise AdminError(f"{path} has no offset for group {group!r}", FORMS)
    return offsets


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets so that `read_offsets` reads them back; as JSON if the name ends in .json."""
    if path.suffix == ".json":
        rows = [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in offsets.items()
        ]
        text = json.dumps(rows, indent=2) + "\n"
    else:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            (topic, partition, offset) for (topic, partition), offset in offsets.items()
        )
        text = out.getvalue()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise AdminError(f"cannot write {path}: {problem.strerror}") from None


def _read_csv(text: str, group: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(csv.reader(io.StringIO(text)), 1):
        if not line:
            continue
        if len(line) not in (3, 4):
            raise ValueError(f"line {number} has {len(line)} fields")
        if len(line) == 4 and line[0] != group:
            continue
        topic, partition, offset = line[-3:]
        _put(offsets, topic, partition, offset, f"line {number}")
    return offsets


def _read_json(text: str, group: str) -> dict[TopicPartition, int]:
    rows = json.loads(text)
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"entry {number} is not an object")
        if row.get("group", group) == group:
            missing = {"topic", "partition", "offset"} - row.keys()
            if missing:
                raise ValueError(f"entry {number} has no {min(missing)}")
            _put(offsets, row["topic"], row["partition"], row["offset"], f"entry {number}")
    return offsets


def _put(
    offsets: dict[TopicPartition, int],
    topic: str,
    partition: str | int,
    offset: str | int,
    where: str,
) -> None:
    try:
        key, number = (topic, int(partition)), int(offset)
    except ValueError:
        raise ValueError(f"{where} has no whole numbers") from None
    if not topic or key[1] < 0 or number < 0:
        raise ValueError(f"{where} has an empty topic or a negative number")
    if offsets.setdefault(key, number) != number:
        raise ValueError(f"{where} names {key[0]}:{key[1]} twice, with different offsets")
