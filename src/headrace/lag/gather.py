"""Takes a snapshot of a group: watches it for a while, then samples its topics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.client.clock import Clock
from headrace.client.dead_letters import ERROR_HEADER, RESENT_HEADER, SUFFIX
from headrace.client.message import find_header
from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.leaders import EARLIEST, LATEST, Leaders
from headrace.lag.group_lag import PartitionLag
from headrace.lag.meter import Meter
from headrace.lag.snapshot import (
    EARLIER_SECONDS,
    RECENT_SECONDS,
    Failures,
    Inflow,
    Sample,
    Snapshot,
    compare,
)
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.records import Record

EVERY_MS = 250
RECENT_MS = RECENT_SECONDS * 1000
EARLIER_MS = EARLIER_SECONDS * 1000
# An earlier time shorter than this is not compared with.
EARLIER_MS_MIN = 60_000
SAMPLE_BYTES = 1 << 20
SAMPLE_RECORDS = 1_000
TOP_KEYS = 5
KEY_CHARS_MAX = 40


def gather(
    cluster: ClusterClient,
    group: str,
    clock: Clock,
    watch_ms: int,
    waiting: Mapping[str, Failures] | None = None,
) -> Snapshot | None:
    """A snapshot of a group after watching it for `watch_ms`; None if it does not exist.

    `waiting` are the failures by topic in a store of handlers.
    """
    meter = Meter(cluster, clock)
    measured = []
    never = threading.Event()
    until_ms = clock.monotonic_ms() + watch_ms
    while True:
        measured += meter.measure(lambda row: row.group == group)
        left_ms = until_ms - clock.monotonic_ms()
        if left_ms <= 0 or not measured:
            break
        clock.wait(never, min(EVERY_MS, left_ms))
    if not measured:
        return None
    snapshot = compare(measured)
    counts = {topic.name or "": len(topic.partitions) for topic in cluster.topics()}
    read = {row.topic for row in snapshot.group.partitions}
    behind = sorted({row.topic for row in snapshot.lagging})
    keys = [(topic, number) for topic in behind for number in range(counts.get(topic, 0))]
    letters = [topic + SUFFIX for topic in sorted(read) if counts.get(topic + SUFFIX)]
    letter_keys = [(topic, number) for topic in letters for number in range(counts[topic])]
    leaders = Leaders(cluster, [*keys, *letter_keys])
    now_ms = clock.now_ms()
    return replace(
        snapshot,
        topic_partitions={topic: counts[topic] for topic in sorted(read) if topic in counts},
        inflows=_inflows(leaders, keys, now_ms),
        sample=_sample(leaders, snapshot.lagging),
        failures=_failures(leaders, letter_keys, now_ms, waiting or {}),
    )


def _inflows(
    leaders: Leaders, keys: list[TopicPartition], now_ms: int
) -> dict[TopicPartition, Inflow]:
    """How fast records came in, by their timestamps."""
    starts, ends = leaders.offsets(keys, EARLIEST), leaders.offsets(keys, LATEST)
    recent = leaders.offsets(keys, now_ms - RECENT_MS)
    earlier = leaders.offsets(keys, now_ms - RECENT_MS - EARLIER_MS)
    oldest = leaders.read({key: starts[key] for key in keys if key in starts}, SAMPLE_BYTES, 1)
    inflows = {}
    for key in keys:
        if not (key in starts and key in ends and key in recent and key in earlier):
            continue
        at_recent = ends[key] if recent[key] < 0 else recent[key]
        at_earlier = ends[key] if earlier[key] < 0 else earlier[key]
        records = oldest[key].records if key in oldest else []
        began_ms = records[0].timestamp if records else now_ms
        # A topic may be younger than the earlier time.
        span_ms = min(EARLIER_MS, now_ms - RECENT_MS - began_ms)
        inflows[key] = Inflow(
            (ends[key] - at_recent) / (RECENT_MS / 1000),
            (at_recent - at_earlier) / (span_ms / 1000) if span_ms >= EARLIER_MS_MIN else None,
        )
    return inflows


def _sample(leaders: Leaders, lagging: list[PartitionLag]) -> Sample | None:
    """The keys of unread records, in the partition that is furthest behind."""
    if not lagging or lagging[0].end is None or lagging[0].lag is None:
        return None
    worst = lagging[0]
    offset = max(worst.committed or 0, worst.start or 0)
    found = leaders.read({worst.key: offset}, SAMPLE_BYTES, SAMPLE_RECORDS).get(worst.key)
    if found is None or not found.records:
        return None
    keys = Counter(record.key for record in found.records if record.key is not None)
    return Sample(
        worst.key,
        len(found.records),
        len(keys),
        tuple((_word(key), count) for key, count in keys.most_common(TOP_KEYS)),
        sum(_header(record, RESENT_HEADER) is not None for record in found.records),
    )


def _failures(
    leaders: Leaders, keys: Iterable[TopicPartition], now_ms: int, waiting: Mapping[str, Failures]
) -> tuple[Failures, ...]:
    """Recent failures, by dead letters in their topics and by the store."""
    keys = list(keys)
    ends = leaders.offsets(keys, LATEST)
    since = leaders.offsets(keys, now_ms - EARLIER_MS)
    found = dict(waiting)
    for key in keys:
        count = ends[key] - since[key] if key in ends and since.get(key, -1) >= 0 else 0
        if not count:
            continue
        last = leaders.read({key: ends[key] - 1}, SAMPLE_BYTES, 1).get(key)
        error = _header(last.records[0], ERROR_HEADER) if last and last.records else None
        topic = key[0].removesuffix(SUFFIX)
        known = found.get(topic, Failures(topic))
        found[topic] = known._replace(
            dead_letters=known.dead_letters + count,
            error=(error or b"").decode(errors="replace").partition("\n")[0] or known.error,
        )
    return tuple(found[topic] for topic in sorted(found))


def _header(record: Record, name: str) -> bytes | None:
    return find_header(record.headers, name) if record.headers else None


def _word(key: bytes) -> str:
    return key.decode(errors="backslashreplace")[:KEY_CHARS_MAX]
