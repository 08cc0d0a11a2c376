"""The progress of a pipeline: what its queries report, and what is left of a bounded run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.settings import settings_of, translate
from headrace.spark.source.lags import lag

Ends = Mapping[str, Mapping[str, int]]

METADATA_SECONDS = 30.0


class Progress(NamedTuple):
    """A query's last report; `done` and `total` are records, -1 if the run has no end."""

    batch: int
    rows_per_s: float
    rows: int
    done: int = -1
    total: int = -1
    lag: Mapping[str, Any] | None = None


def read_progress(report: str, begins: Ends | None = None, ends: Ends | None = None) -> Progress:
    """Progress from a query's report in JSON."""
    found = json.loads(report)
    sources = found.get("sources") or []
    reached = [_offsets(source.get("endOffset")) for source in sources]
    done = total = -1
    if ends is not None:
        begins = begins or {}
        done = sum(
            max(0, min(at, _at(ends, topic, number)) - _at(begins, topic, number))
            for offsets in reached
            for topic, partitions in offsets.items()
            for number, at in partitions.items()
        )
        total = _sum(ends) - _sum(begins)
    behind = lag(found)
    return Progress(
        int(found.get("batchId", -1)),
        float(found.get("processedRowsPerSecond") or 0.0),
        int(found.get("numInputRows") or 0),
        done,
        total,
        None if behind is None else behind._asdict(),
    )


def has_reached(report: str, ends: Ends) -> bool:
    """Whether a query has read everything before these ends."""
    sources = json.loads(report)["sources"]
    reached = {
        (topic, number): at
        for source in sources
        for topic, partitions in _offsets(source.get("endOffset")).items()
        for number, at in partitions.items()
    }
    return all(
        reached.get((topic, number), -1) >= end
        for topic, partitions in ends.items()
        for number, end in partitions.items()
        if end > 0
    )


def seconds_left(progress: Progress) -> float | None:
    """How long the rest takes at this rate; None if it is unknown."""
    if progress.total < 0 or progress.rows_per_s <= 0:
        return None
    return max(0, progress.total - progress.done) / progress.rows_per_s


def begins_and_ends(settings: Mapping[str, str], topics: Iterable[str]) -> tuple[Ends, Ends]:
    """The first offset and the end of each partition, for a read_committed reader."""
    from confluent_kafka import Consumer, TopicPartition

    begins: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    translated = translate(
        {**settings_of(settings, "consumer"), "group.id": "headrace-progress"}, "consumer"
    )
    consumer = Consumer({**translated, "log_level": 0})
    try:
        for topic in topics:
            known = consumer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
            for number in known.partitions:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=METADATA_SECONDS
                )
                begins.setdefault(topic, {})[str(number)] = low
                ends.setdefault(topic, {})[str(number)] = high
    finally:
        consumer.close()
    return begins, ends


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    found = json.loads(given) if isinstance(given, str) else given
    return found if isinstance(found, dict) else {}


def _at(offsets: Ends, topic: str, number: str) -> int:
    return offsets.get(topic, {}).get(number, 0)


def _sum(offsets: Ends) -> int:
    return sum(sum(partitions.values()) for partitions in offsets.values())
