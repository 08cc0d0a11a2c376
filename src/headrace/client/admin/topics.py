"""Topics that are made by whoever needs them first, with the settings that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.client.errors import UnknownSetting
from headrace.client.settings import Settings, translate, with_bootstrap

ADMIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class NeededTopic:
    """A topic, how it is made, and which of its settings must be so even if another made it."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    must: Mapping[str, str] = field(default_factory=dict)

    @property
    def unless_there(self) -> NeededTopic:
        """The same for a sender: to correct a topic that is there is for the service, which may."""
        return NeededTopic(self.name, self.partitions, {**self.config, **self.must})


def commands_topic(name: str, partitions: int = 1) -> NeededTopic:
    """The topic of a service's commands; its time is the broker's.

    One partition keeps the commands of every client in their order, and carries many thousands a
    second.
    """
    return NeededTopic(name, partitions, must={"message.timestamp.type": "LogAppendTime"})


def shared_settings(settings: str | Settings) -> dict[str, Any]:
    """The settings that clients of every kind know."""
    given = with_bootstrap(settings)
    address = {"bootstrap.servers": given.pop("bootstrap.servers")}
    shared: dict[str, Any] = dict(address)
    for name, value in given.items():
        try:
            translate({**address, name: value}, "consumer")
            translate({**address, name: value}, "producer")
        except UnknownSetting:
            continue
        shared[name] = value
    return shared


def admin_client(settings: str | Settings) -> AdminClient:
    """An admin client by settings that consumers and producers share."""
    given = {"log_level": 0, **with_bootstrap(settings)}
    return AdminClient(translate(given, "producer"))


def make_topics(admin: AdminClient, needed: Sequence[NeededTopic]) -> None:
    """Make those that are missing and correct the others; KafkaException if that is refused."""
    # Not asked for by name: that would make them, with the broker's own settings.
    known = admin.list_topics(timeout=ADMIN_SECONDS).topics
    missing = [topic for topic in needed if topic.name not in known]
    if missing:
        new = [
            NewTopic(topic.name, topic.partitions, -1, config={**topic.config, **topic.must})
            for topic in missing
        ]
        for future in admin.create_topics(new, request_timeout=ADMIN_SECONDS).values():
            try:
                future.result(2 * ADMIN_SECONDS)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    _correct(admin, [topic for topic in needed if topic.must and topic not in missing])


def _correct(admin: AdminClient, topics: Sequence[NeededTopic]) -> None:
    if not topics:
        return
    asked = {ConfigResource(ResourceType.TOPIC, topic.name): topic for topic in topics}
    wrong: list[ConfigResource] = []
    for resource, future in admin.describe_configs(list(asked)).items():
        found: Mapping[str, Any] = future.result(ADMIN_SECONDS)
        topic = asked[resource]
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in topic.must.items()
            if name not in found or found[name].value != value
        ]
        if changes:
            wrong.append(
                ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=changes)
            )
    if wrong:
        for future in admin.incremental_alter_configs(wrong).values():
            future.result(ADMIN_SECONDS)
