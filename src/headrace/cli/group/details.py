"""What `headrace group describe` shows of a group: its members, and how far each partition is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.client.admin.groups import GroupRow
from headrace.client.clock import SystemClock
from headrace.client.wire.cluster import ClusterClient
from headrace.lag.group_lag import GroupLag, MemberView, PartitionLag
from headrace.lag.meter import Meter


def read_groups(
    cluster: ClusterClient, rows: Iterable[GroupRow], *, behind: bool
) -> list[dict[str, Any]]:
    """One document for each group: state, assignor, coordinator, members and partitions."""
    wanted = {row.group: row for row in rows}
    found = {
        group.group: group
        for group in Meter(cluster, SystemClock()).measure(lambda row: row.group in wanted)
    }
    return [
        _group(found[name], row, behind=behind) for name, row in wanted.items() if name in found
    ]


def _group(group: GroupLag, row: GroupRow, *, behind: bool) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": row.coordinator._asdict(),
        "members": [_member(member) for member in group.members or ()],
        "partitions": [_partition(partition, behind=behind) for partition in group.partitions],
        "lag": group.lag or 0,
    }


def _member(member: MemberView) -> dict[str, Any]:
    places: dict[str, list[int]] = {}
    for topic, partition in sorted(member.owned):
        places.setdefault(topic, []).append(partition)
    return {
        "member": member.id,
        "client": member.client,
        "host": member.host,
        "instance": member.instance,
        "partitions": places,
    }


def _partition(row: PartitionLag, *, behind: bool) -> dict[str, Any]:
    age = {"behind": None if row.behind_ms is None else row.behind_ms / 1000} if behind else {}
    return {
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed,
        "end": row.end,
        "lag": row.lag,
        **age,
        "member": row.member,
    }
