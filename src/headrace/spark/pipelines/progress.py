"""The progress of a pipeline: what its queries report, and what is left of a bounded run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.settings import settings_of, translate
from headrace.spark.source.lags import lag
from headrace.spark.source.offset_ranges import Offsets, from_json, records_between

METADATA_SECONDS = 30.0


class Progress(NamedTuple):
    """A query's last report; `done` and `total` are records, -1 if the run has no end."""

    batch: int
    rows_per_s: float
    rows: int
    done: int = -1
    total: int = -1
    lag: Mapping[str, Any] | None = None


def read_progress(
    report: str, begins: Offsets | None = None, ends: Offsets | None = None
) -> Progress:
    """Progress from a query's report in JSON; `begins` and `ends` are those of a bounded run."""
    found = json.loads(report)
    done = total = -1
    if ends is not None:
        reached = {tp: min(at, ends.get(tp, 0)) for tp, at in _reached(found).items()}
        done = records_between(begins or {}, reached)
        total = records_between(begins or {}, ends)
    behind = lag(found)
    return Progress(
        int(found.get("batchId", -1)),
        float(found.get("processedRowsPerSecond") or 0.0),
        int(found.get("numInputRows") or 0),
        done,
        total,
        None if behind is None else behind._asdict(),
    )


def has_reached(report: str, ends: Offsets) -> bool:
    """Whether a query has read everything before these ends."""
    reached = _reached(json.loads(report))
    return all(reached.get(tp, -1) >= end for tp, end in ends.items() if end > 0)


def seconds_left(progress: Progress) -> float | None:
    """How long the rest takes at this rate; None if it is unknown."""
    if progress.total < 0 or progress.rows_per_s <= 0:
        return None
    return max(0, progress.total - progress.done) / progress.rows_per_s


def begins_and_ends(settings: Mapping[str, str], topics: Iterable[str]) -> tuple[Offsets, Offsets]:
    """The first offset and the end of each partition, for a read_committed reader."""
    from confluent_kafka import Consumer, TopicPartition

    begins: Offsets = {}
    ends: Offsets = {}
    translated = translate(
        {**settings_of(settings, "consumer"), "group.id": "headrace-progress"}, "consumer"
    )
    consumer = Consumer({**translated, "log_level": 0})
    try:
        for topic in topics:
            known = consumer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
            for number in known.partitions:
                begins[topic, number], ends[topic, number] = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=METADATA_SECONDS
                )
    finally:
        consumer.close()
    return begins, ends


def _reached(report: dict[str, Any]) -> Offsets:
    """The offsets that all sources of a query have reached."""
    reached: Offsets = {}
    for source in report.get("sources") or []:
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        reached |= from_json(end) if isinstance(end, dict) else {}
    return reached
