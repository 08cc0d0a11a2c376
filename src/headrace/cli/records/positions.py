"""Where a consumer without a group starts and ends: the `--offset` argument, resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headrace.cli.common.errors import CliError

TIMEOUT_SECONDS = 30.0
_FORM = re.compile(r"(?P<mark>[se])@(?P<time>\d+)|(?P<number>-?\d+)|(?P<word>beginning|end)")


@dataclass(frozen=True, slots=True)
class Positions:
    """Start and end as asked for: a word, an offset, a distance from the end, or times."""

    start: str = "beginning"
    start_time_ms: int | None = None
    end_time_ms: int | None = None


def parse_positions(texts: list[str]) -> Positions:
    """Read `--offset` arguments: beginning, end, N, -N (before the end), s@MS and e@MS."""
    start, start_time_ms, end_time_ms = "beginning", None, None
    for text in texts:
        form = _FORM.fullmatch(text)
        if form is None:
            raise CliError(
                f"--offset {text!r} is not a position",
                "use beginning, end, N, -N (that many before the end), s@MS or e@MS",
                2,
            )
        if form["mark"] == "s":
            start_time_ms = int(form["time"])
        elif form["mark"] == "e":
            end_time_ms = int(form["time"])
        else:
            start = text
    return Positions(start, start_time_ms, end_time_ms)


def resolve(
    consumer: Any, partitions: list[tuple[str, int]], positions: Positions
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Start offsets, and end offsets (exclusive) where an end was asked for."""
    marks = {
        (topic, partition): _watermarks(consumer, topic, partition)
        for topic, partition in partitions
    }
    ends: dict[tuple[str, int], int] = {}
    if positions.end_time_ms is not None:
        found = _offsets_at(consumer, partitions, positions.end_time_ms)
        ends = {key: marks[key][1] if found[key] < 0 else found[key] for key in partitions}
    if positions.start_time_ms is not None:
        found = _offsets_at(consumer, partitions, positions.start_time_ms)
        starts = {key: marks[key][1] if found[key] < 0 else found[key] for key in partitions}
    else:
        starts = {key: _start(positions.start, *marks[key]) for key in partitions}
    return starts, ends


def _start(word: str, low: int, high: int) -> int:
    if word == "beginning":
        return low
    if word == "end":
        return high
    number = int(word)
    return number if not word.startswith("-") else max(low, high + number)


def _watermarks(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
    from confluent_kafka import TopicPartition

    low, high = consumer.get_watermark_offsets(
        TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS
    )
    return low, high


def _offsets_at(
    consumer: Any, partitions: list[tuple[str, int]], time_ms: int
) -> dict[tuple[str, int], int]:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, partition, time_ms) for topic, partition in partitions]
    answered = consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
    return {(found.topic, found.partition): found.offset for found in answered}
