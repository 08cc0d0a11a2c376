"""Where a query begins and ends, as its options say it: by name, by offsets or by time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import OptionError

Offsets = dict[TopicPartition, int]

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
"""What the official connector writes in place of an offset."""
_STRATEGIES = ("error", "latest")


@dataclass(frozen=True, slots=True)
class Position:
    """One word for all partitions, or an offset or a time in ms for each of them."""

    word: str | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int | None = None
    """One time for all partitions."""
    late: str = "error"
    """What to do where every record is older than the time: an error, or begin at latest."""

    @property
    def has_earliest(self) -> bool:
        """Whether any partition is to be taken at its beginning."""
        return self.word == EARLIEST or EARLIEST_OFFSET in self.offsets.values()


def read_position(
    options: Mapping[str, str], which: Literal["starting", "ending"]
) -> Position | None:
    """The position that options (names in lower case) ask for, None if they do not."""
    late = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if late not in _STRATEGIES:
        raise OptionError(
            f"startingOffsetsByTimestampStrategy {late!r} is neither error nor latest"
        )
    # Of several, the official connector takes the first of these.
    if (value := options.get(f"{which}timestamp")) is not None:
        return Position(time_ms=_whole(f"{which}Timestamp", value), late=late)
    if (value := options.get(f"{which}offsetsbytimestamp")) is not None:
        return Position(times_ms=_read(f"{which}OffsetsByTimestamp", value, 0), late=late)
    name = f"{which}Offsets"
    if (value := options.get(name.lower())) is None:
        return None
    if value.strip().lower() in (EARLIEST, LATEST):
        return Position(value.strip().lower())
    return Position(offsets=_read(name, value, EARLIEST_OFFSET))


def read_places(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions as the official connector's `assign` names them: {"clicks": [0, 1]}."""
    example = '{"clicks": [0, 1]}'
    places: list[TopicPartition] = []
    for topic, numbers in _object(name, text, example).items():
        if not isinstance(numbers, list):
            raise OptionError(f"{name}: {topic} has no list of partitions", f"such as {example}")
        places += [(topic, _whole(name, number)) for number in numbers]
    return tuple(places)


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as the official connector keeps them in checkpoints, always in one order."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets out of a checkpoint."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }


def _read(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    example = '{"clicks": {"0": 23}}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(
                f"{name}: {topic} has no offset for each partition", f"such as {example}"
            )
        for partition, number in partitions.items():
            found[topic, _whole(name, partition)] = _whole(name, number, least)
    return found


def _object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{name} {text!r} is neither a known word nor JSON", f"such as {example}")
    return found


def _whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least or isinstance(value, bool | float):
        raise OptionError(f"{name}: {value!r} is not a whole number of {least} or more")
    return number
