"""What `headrace topic describe` shows of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.client.admin.offsets import REQUEST_SECONDS, read_bounds

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DETAIL_COLUMNS = ("partition", "leader", "replicas", "isr", "start", "end")


def read_details(admin: AdminClient, names: list[str]) -> list[dict[str, Any]]:
    """One document per topic: id, settings that differ from the defaults, partitions."""
    from confluent_kafka import TopicCollection

    futures = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
    described = {name: future.result() for name, future in futures.items()}
    bounds = read_bounds(
        admin, [(name, one.id) for name, topic in described.items() for one in topic.partitions]
    )
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
                    **bounds[name, partition.id]._asdict(),
                }
                for partition in described[name].partitions
            ],
        }
        for name in names
    ]


def _read_config(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in future.result().values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, future in futures.items()
    }
