"""How far a streaming query is behind: in records, and by the age of the first unread one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.client.wire.cluster import Cluster
from headrace.client.wire.leaders import Leaders
from headrace.protocol.partitions import TopicPartition
from headrace.spark.source.ranges import behind

KEY = "headrace.lag"
"""Beside the topics in `sources[0].latestOffset` of a query's progress."""
PARTITIONS_MAX = 16
"""Of so many partitions, those furthest behind, the age is looked up."""
SAMPLE_BYTES = 1 << 16


class Lag(NamedTuple):
    """How far a query is behind."""

    records: int
    seconds: float


def measure(
    cluster: Cluster,
    reached: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    now_s: float,
) -> Lag:
    """The lag of a query that has reached some places, by the records that come next."""
    waiting = {
        place: end - reached.get(place, 0)
        for place, end in latest.items()
        if end > reached.get(place, 0)
    }
    if not waiting:
        return Lag(0, 0.0)
    furthest = sorted(waiting, key=lambda place: waiting[place], reverse=True)[:PARTITIONS_MAX]
    next_ones = Leaders(cluster, furthest).read(
        {place: reached.get(place, 0) for place in furthest}, SAMPLE_BYTES, records_each=1
    )
    times_ms = [found.records[0].timestamp for found in next_ones.values() if found.records]
    age_s = max((now_s - time_ms / 1000 for time_ms in times_ms), default=0.0)
    return Lag(behind(reached, latest), round(max(0.0, age_s), 3))


def report(lag: Lag) -> dict[str, Any]:
    """The lag as it stands in a query's progress."""
    return {KEY: lag._asdict()}


def lag(progress: Any) -> Lag | None:
    """The lag out of `query.lastProgress`, summed up over its sources of this kind."""
    found: list[Lag] = []
    for source in (progress or {}).get("sources", []):
        latest = source.get("latestOffset")
        latest = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(latest, dict) and KEY in latest:
            found.append(Lag(**latest[KEY]))
    if not found:
        return None
    return Lag(sum(it.records for it in found), max(it.seconds for it in found))
