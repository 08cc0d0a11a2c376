"""What `headrace topic describe` shows of a topic, gathered from the admin calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DETAIL_COLUMNS = ("partition", "leader", "replicas", "isr", "start", "end")
TIMEOUT_SECONDS = 30.0


def read_details(admin: AdminClient, names: list[str]) -> list[dict[str, Any]]:
    """One document per topic: id, settings that differ from the defaults, partitions."""
    from confluent_kafka import TopicCollection

    futures = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_SECONDS)
    described = {name: future.result() for name, future in futures.items()}
    offsets = _read_offsets(admin, described)
    config = _read_config(admin, names)
    return [
        {
            "topic": name,
            "id": str(described[name].topic_id),
            "internal": described[name].is_internal,
            "config": config[name],
            "partitions": [
                {
                    "partition": partition.id,
                    "leader": partition.leader.id if partition.leader else None,
                    "replicas": [node.id for node in partition.replicas],
                    "isr": [node.id for node in partition.isr],
                    "start": offsets[name, partition.id][0],
                    "end": offsets[name, partition.id][1],
                }
                for partition in described[name].partitions
            ],
        }
        for name in names
    ]


def _read_offsets(
    admin: AdminClient, described: dict[str, Any]
) -> dict[tuple[str, int], tuple[int, int]]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    partitions = [
        TopicPartition(name, partition.id)
        for name, topic in described.items()
        for partition in topic.partitions
    ]
    ends: list[dict[tuple[str, int], int]] = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        futures = admin.list_offsets(
            dict.fromkeys(partitions, spec), request_timeout=TIMEOUT_SECONDS
        )
        ends.append({(p.topic, p.partition): f.result().offset for p, f in futures.items()})
    start, end = ends
    return {key: (start[key], end[key]) for key in start}


def _read_config(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in future.result().values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, future in futures.items()
    }
