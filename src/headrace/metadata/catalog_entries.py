"""The entries of a catalog in the store: their paths, what they hold, and their JSON formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.metadata.store import MetadataEntry, StoreError

TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
DELETED_TOPICS = "/admin/delete_topics"
CLUSTER_ID = "/cluster/id"
BROKER_EPOCH = "/brokers/epoch"
LOG_DIRS = "/brokers/log_dirs"
PRODUCER_IDS = "/latest_producer_id_block"
# The entry of the settings for all brokers, beside those of single brokers.
ALL_BROKERS = "<default>"


class CatalogError(StoreError):
    """The store contains an entry that is not valid in a catalog."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its id is unique forever, its name may be used again after its deletion."""

    name: str
    id: bytes
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False
    version: int = 0
    config_version: int = 0


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic whose folders may still exist."""

    name: str
    id: bytes
    partitions: int


def dump_json(value: Any) -> bytes:
    """A value as it is stored."""
    return json.dumps(value, separators=(",", ":")).encode()


def parse_json(path: str, entry: MetadataEntry) -> dict[str, Any]:
    """The JSON object in an entry; raises CatalogError if it is something else."""
    try:
        value = json.loads(entry.data)
    except ValueError as error:
        raise CatalogError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CatalogError(f"{path} is not a JSON object")
    return value


def dump_topic(topic: Topic, leader: int) -> bytes:
    """The entry of a topic whose partitions have this leader."""
    partitions = {str(index): [leader] for index in range(topic.partitions)}
    value = {"version": 3, "topic_id": topic.id.hex(), "partitions": partitions}
    return dump_json(value | {"internal": True} if topic.internal else value)


def parse_topic(name: str, entry: MetadataEntry, configs: Mapping[str, MetadataEntry]) -> Topic:
    """A topic from its entry and the settings of all topics."""
    path, config = f"{TOPICS}/{name}", configs.get(name)
    if config is None:
        raise CatalogError(f"{TOPIC_CONFIGS}/{name} is missing")
    value = parse_json(path, entry)
    try:
        return Topic(
            name,
            bytes.fromhex(value["topic_id"]),
            len(value["partitions"]),
            parse_config(f"{TOPIC_CONFIGS}/{name}", config),
            bool(value.get("internal", False)),
            entry.version,
            config.version,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(f"{path} is not a topic: {error!r}") from error


def dump_config(config: Mapping[str, str]) -> bytes:
    """The entry of settings."""
    return dump_json({"version": 1, "config": dict(config)})


def parse_config(path: str, entry: MetadataEntry) -> dict[str, str]:
    """The settings in an entry."""
    config = parse_json(path, entry).get("config")
    if not isinstance(config, dict):
        raise CatalogError(f"{path} holds no settings")
    return {str(name): str(value) for name, value in config.items()}


def parse_log_dirs(path: str, entry: MetadataEntry) -> dict[str, str]:
    """The ids of a broker's log dirs by their path."""
    ids_by_path = parse_json(path, entry).get("log_dirs")
    if not isinstance(ids_by_path, dict):
        raise CatalogError(f"{path} holds no log dirs")
    return {str(folder): str(directory_id) for folder, directory_id in ids_by_path.items()}


def dump_deleted(topic: DeletedTopic) -> bytes:
    """The entry of a deleted topic."""
    return dump_json({"version": 1, "name": topic.name, "partitions": topic.partitions})


def parse_deleted(topic_hex: str, entry: MetadataEntry) -> DeletedTopic:
    """A deleted topic from its entry."""
    path = f"{DELETED_TOPICS}/{topic_hex}"
    value = parse_json(path, entry)
    try:
        return DeletedTopic(value["name"], bytes.fromhex(topic_hex), value["partitions"])
    except (KeyError, ValueError) as error:
        raise CatalogError(f"{path} is not a deleted topic: {error!r}") from error
