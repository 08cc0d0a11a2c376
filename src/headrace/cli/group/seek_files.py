"""Places of a group in a file: CSV as Kafka's own kafka-consumer-groups writes it, or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from headrace.cli.common.errors import CliError
from headrace.protocol.partitions import TopicPartition

FORMS = (
    "lines are topic,partition,offset or group,topic,partition,offset; JSON is a list of objects "
    "with topic, partition and offset"
)


def read_places(path: Path, group: str) -> dict[TopicPartition, int]:
    """The places of a group in a file; lines that name another group are not its own."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no text"
        raise CliError(f"cannot read {path}: {reason}") from None
    read = _read_json if text.lstrip()[:1] in ("[", "{") else _read_csv
    try:
        places = read(text, group)
    except (ValueError, KeyError, TypeError) as problem:
        raise CliError(f"{path} holds no places: {problem}", FORMS) from None
    if not places:
        raise CliError(f"{path} has no place for group {group!r}", FORMS)
    return places


def write_places(path: Path, places: Mapping[TopicPartition, int]) -> None:
    """Write places so that `--to file:PATH` reads them back; JSON if the name says so."""
    if path.suffix == ".json":
        rows = [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in places.items()
        ]
        text = json.dumps(rows, indent=2) + "\n"
    else:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            (topic, partition, offset) for (topic, partition), offset in places.items()
        )
        text = out.getvalue()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise CliError(f"cannot write {path}: {problem.strerror}") from None


def _read_csv(text: str, group: str) -> dict[TopicPartition, int]:
    places: dict[TopicPartition, int] = {}
    for number, line in enumerate(csv.reader(io.StringIO(text)), 1):
        if not line:
            continue
        if len(line) not in (3, 4):
            raise ValueError(f"line {number} has {len(line)} fields")
        if len(line) == 4 and line[0] != group:
            continue
        topic, partition, offset = line[-3:]
        _put(places, topic, partition, offset, f"line {number}")
    return places


def _read_json(text: str, group: str) -> dict[TopicPartition, int]:
    rows = json.loads(text)
    places: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"entry {number} is no object")
        if row.get("group", group) == group:
            missing = {"topic", "partition", "offset"} - row.keys()
            if missing:
                raise ValueError(f"entry {number} has no {min(missing)}")
            _put(places, row["topic"], row["partition"], row["offset"], f"entry {number}")
    return places


def _put(
    places: dict[TopicPartition, int],
    topic: str,
    partition: str | int,
    offset: str | int,
    where: str,
) -> None:
    try:
        key, place = (topic, int(partition)), int(offset)
    except ValueError:
        raise ValueError(f"{where} has no whole numbers") from None
    if not topic or key[1] < 0 or place < 0:
        raise ValueError(f"{where} has an empty topic or a negative number")
    if places.setdefault(key, place) != place:
        raise ValueError(f"{where} names {key[0]}:{key[1]} a second time")
