"""How far a streaming query is behind: in records, and by the age of the first unread one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.leaders import Leaders
from headrace.protocol.partitions import TopicPartition
from headrace.spark.source.offset_ranges import records_between

KEY = "headrace.lag"
"""Stands beside the topics in `sources[0].latestOffset` of a query's progress."""
PARTITIONS_MAX = 16
"""The age is looked up for this many partitions, those furthest behind."""
SAMPLE_BYTES = 1 << 16


class Lag(NamedTuple):
    """How far a query is behind."""

    records: int
    seconds: float


def measure(
    cluster: ClusterClient,
    reached: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    now_s: float,
) -> Lag:
    """The lag of a query that has reached these offsets; its age is that of the next records."""
    waiting = {
        tp: end - reached.get(tp, 0) for tp, end in latest.items() if end > reached.get(tp, 0)
    }
    if not waiting:
        return Lag(0, 0.0)
    furthest = sorted(waiting, key=lambda tp: waiting[tp], reverse=True)[:PARTITIONS_MAX]
    next_ones = Leaders(cluster, furthest).read(
        {tp: reached.get(tp, 0) for tp in furthest}, SAMPLE_BYTES, records_each=1
    )
    times_ms = [found.records[0].timestamp for found in next_ones.values() if found.records]
    age_s = max((now_s - time_ms / 1000 for time_ms in times_ms), default=0.0)
    return Lag(records_between(reached, latest), round(max(0.0, age_s), 3))


def report(lag: Lag) -> dict[str, Any]:
    """The lag as an entry of a query's progress."""
    return {KEY: lag._asdict()}


def lag(progress: Any) -> Lag | None:
    """The lag in `query.lastProgress`, summed over its Headrace sources; None without any."""
    found: list[Lag] = []
    for source in (progress or {}).get("sources", []):
        latest = source.get("latestOffset")
        latest = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(latest, dict) and KEY in latest:
            found.append(Lag(**latest[KEY]))
    if not found:
        return None
    return Lag(sum(it.records for it in found), max(it.seconds for it in found))
