"""Where a query begins and ends, from its options: by word, by offsets or by time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import OptionError

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
    """What to do where every record is older than the time: fail, or begin at latest."""

    @property
    def has_earliest(self) -> bool:
        """Whether any partition is taken at its beginning."""
        return self.word == EARLIEST or EARLIEST_OFFSET in self.offsets.values()


def read_position(
    options: Mapping[str, str], which: Literal["starting", "ending"]
) -> Position | None:
    """The position that options (names in lower case) give, or None."""
    late = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if late not in _STRATEGIES:
        raise OptionError(
            f"startingOffsetsByTimestampStrategy {late!r} is neither error nor latest"
        )
    # Of several, the official connector takes the first of these.
    if (value := options.get(f"{which}timestamp")) is not None:
        return Position(time_ms=_whole_number(f"{which}Timestamp", value), late=late)
    if (value := options.get(f"{which}offsetsbytimestamp")) is not None:
        return Position(times_ms=_by_partition(f"{which}OffsetsByTimestamp", value, 0), late=late)
    name = f"{which}Offsets"
    if (value := options.get(name.lower())) is None:
        return None
    if value.strip().lower() in (EARLIEST, LATEST):
        return Position(value.strip().lower())
    return Position(offsets=_by_partition(name, value, EARLIEST_OFFSET))


def read_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions as the official connector's `assign` names them: {"clicks": [0, 1]}."""
    example = '{"clicks": [0, 1]}'
    assigned: list[TopicPartition] = []
    for topic, numbers in _json_object(name, text, example).items():
        if not isinstance(numbers, list):
            raise OptionError(f"{name}: {topic} has no list of partitions", f"such as {example}")
        assigned += [(topic, _whole_number(name, number)) for number in numbers]
    return tuple(assigned)


def _by_partition(name: str, text: str, minimum: int) -> dict[TopicPartition, int]:
    example = '{"clicks": {"0": 23}}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(
                f"{name}: {topic} has no offset for each partition", f"such as {example}"
            )
        for partition, number in partitions.items():
            found[topic, _whole_number(name, partition)] = _whole_number(name, number, minimum)
    return found


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{name} {text!r} is neither a known word nor JSON", f"such as {example}")
    return found


def _whole_number(name: str, value: Any, minimum: int = 0) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = minimum - 1
    if number < minimum or isinstance(value, bool | float):
        raise OptionError(f"{name}: {value!r} is not a whole number of {minimum} or more")
    return number
