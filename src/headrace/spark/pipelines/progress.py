"""How far a pipeline is: what its queries report, and what is left of a bounded run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.settings import settings_of, translate
from headrace.spark.source.lags import lag

Ends = Mapping[str, Mapping[str, int]]

METADATA_SECONDS = 30.0


class Progress(NamedTuple):
    """What a query said last; `done` and `total` are records, -1 where the end is not known."""

    batch: int
    rows_per_s: float
    rows: int
    done: int = -1
    total: int = -1
    lag: Mapping[str, Any] | None = None


def read_progress(report: str, begins: Ends | None = None, ends: Ends | None = None) -> Progress:
    """Progress from a query's own report, a JSON document."""
    found = json.loads(report)
    sources = found.get("sources") or []
    places = [_offsets(source.get("endOffset")) for source in sources]
    done = total = -1
    if ends is not None:
        begins = begins or {}
        done = sum(
            max(0, min(at, _at(ends, topic, number)) - _at(begins, topic, number))
            for place in places
            for topic, partitions in place.items()
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
    """Whether a query has read all that lay before these ends."""
    places = [_offsets(source.get("endOffset")) for source in json.loads(report)["sources"]]
    reached = {
        (topic, number): at
        for place in places
        for topic, partitions in place.items()
        for number, at in partitions.items()
    }
    return all(
        reached.get((topic, number), -1) >= end
        for topic, partitions in ends.items()
        for number, end in partitions.items()
        if end > 0
    )


def seconds_left(progress: Progress) -> float | None:
    """How long the rest takes at this rate; None if that cannot be said."""
    if progress.total < 0 or progress.rows_per_s <= 0:
        return None
    return max(0, progress.total - progress.done) / progress.rows_per_s


def begins_and_ends(settings: Mapping[str, str], topics: Iterable[str]) -> tuple[Ends, Ends]:
    """The first and the next offset of each partition, as a read_committed reader sees them."""
    from confluent_kafka import Consumer, TopicPartition

    begins: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    fit = translate(
        {**settings_of(settings, "consumer"), "group.id": "headrace-progress"}, "consumer"
    )
    consumer = Consumer({**fit, "log_level": 0})
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


def _at(places: Ends, topic: str, number: str) -> int:
    return places.get(topic, {}).get(number, 0)


def _sum(places: Ends) -> int:
    return sum(sum(partitions.values()) for partitions in places.values())
