"""What `headrace group describe` shows of a group, gathered from the admin calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headrace.cli.connection import REQUEST_TIMEOUT_SECONDS
from headrace.cli.group_names import GroupRow
from headrace.cli.group_offsets import Key, read_bounds, read_committed
from headrace.client.cluster import Cluster

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# A partition whose next record does not come within this time is shown without its age.
READ_SECONDS_MAX = 5.0


def read_group(admin: AdminClient, cluster: Cluster, row: GroupRow) -> dict[str, Any]:
    """One document: state, assignor, coordinator, members, and how far each partition is."""
    futures = admin.describe_consumer_groups([row.group], request_timeout=REQUEST_TIMEOUT_SECONDS)
    described = futures[row.group].result()
    owners = {
        (place.topic, place.partition): member.member_id
        for member in described.members
        for place in member.assignment.topic_partitions
    }
    committed = read_committed(cluster, row.group)
    partitions = _partitions(admin, committed, owners)
    return {
        "group": row.group,
        "state": row.state or described.state.name.title().replace("_", ""),
        "type": row.type,
        "protocol": row.protocol,
        "assignor": described.partition_assignor or None,
        "coordinator": row.coordinator._asdict(),
        "members": sorted((_member(member) for member in described.members), key=_by_name),
        "partitions": partitions,
        "lag": sum(partition["lag"] or 0 for partition in partitions),
    }


def _member(member: Any) -> dict[str, Any]:
    places: dict[str, list[int]] = {}
    for place in member.assignment.topic_partitions:
        places.setdefault(place.topic, []).append(place.partition)
    return {
        "member": member.member_id,
        "client": member.client_id,
        # Kafka puts a slash before an address that it did not look up.
        "host": member.host.removeprefix("/"),
        "instance": member.group_instance_id or None,
        "partitions": {topic: sorted(places[topic]) for topic in sorted(places)},
    }


def _by_name(member: dict[str, Any]) -> tuple[str, str]:
    return member["instance"] or "", member["member"]


def _partitions(
    admin: AdminClient, committed: dict[Key, int], owners: dict[Key, str]
) -> list[dict[str, Any]]:
    keys = sorted({*committed, *owners})
    bounds = read_bounds(admin, keys)
    rows = []
    for key in keys:
        place, end = committed.get(key), bounds[key].end if key in bounds else None
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "committed": place,
                "end": end,
                # Records may be deleted after they were committed, so it is never below zero.
                "lag": None if place is None or end is None else max(0, end - place),
                "member": owners.get(key),
            }
        )
    return rows


def add_ages(rows: list[dict[str, Any]], config: dict[str, Any]) -> None:
    """Add `behind`: how many seconds ago the next record of each partition was written.

    That record must be read, hence only when asked for.
    """
    from confluent_kafka import Consumer, TopicPartition

    for row in rows:
        row["behind"] = 0.0 if row["lag"] == 0 else None
    waiting = {(row["topic"], row["partition"]): row for row in rows if row["lag"]}
    if not waiting:
        return
    consumer = Consumer({**config, "group.id": "headrace-lag", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(*key, row["committed"]) for key, row in waiting.items()])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while waiting and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            key = (message.topic(), message.partition())
            if key in waiting:
                consumer.pause([TopicPartition(*key)])
                written = message.timestamp()[1] / 1000
                waiting.pop(key)["behind"] = max(0.0, round(time.time() - written, 3))
    finally:
        consumer.close()
