"""A topic's tokens and backlog as people and programs look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.dispatch.cluster import Cluster
from headrace.dispatch.errors import DispatchError
from headrace.dispatch.limits import Limits
from headrace.dispatch.tokens_open import open_tokens


def look(
    settings: Mapping[str, Any], topic: str, tokens: str, group: str | None = None
) -> dict[str, Any]:
    """Every partition with its token and backlog, how many tokens are where, and who waits."""
    cluster = Cluster(settings)
    count = cluster.partitions(topic)
    if not count:
        raise DispatchError(f"there is no topic {topic}", "headrace topic list")
    numbers = range(count)
    ends = cluster.ends(topic, numbers)
    committed = cluster.committed(group or f"headrace.dispatch.{topic}", topic, numbers)
    store = open_tokens(tokens, topic, limits=Limits(), policy="fair")
    try:
        found = store.status()
    finally:
        store.close()
    rows: list[dict[str, Any]] = []
    for number in numbers:
        seen = found.tokens.get(number)
        is_leased = seen is not None and seen.state in ("offered", "out")
        rows.append(
            {
                "partition": number,
                "token": None if seen is None else seen.state,
                "fence": None if seen is None else seen.fence.text(),
                "node": (seen.node or None) if seen is not None else None,
                "lease_ms": seen.left_ms if seen is not None and is_leased else None,
                "backlog": ends[number] - committed[number] if number in committed else None,
            }
        )
    return {
        "topic": topic,
        "tokens": {**found.counts(), "missing": sum(row["token"] is None for row in rows)},
        "waiting": found.waiting,
        "partitions": rows,
    }
