"""Topics: created, altered and deleted, or made by the first process that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.client.errors import TopicNotCreated
from headrace.client.settings import ClientSettings, translate, with_bootstrap

ADMIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class NeededTopic:
    """A topic to create, and the settings (`must`) that are corrected if it exists already.

    -1 partitions are as many as the broker gives by default.
    """

    name: str
    partitions: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    must: Mapping[str, str] = field(default_factory=dict)

    @property
    def unless_there(self) -> NeededTopic:
        """The same for a sender, which creates it but leaves correcting it to the service."""
        return NeededTopic(self.name, self.partitions, {**self.config, **self.must})


def commands_topic(name: str, partitions: int = 1) -> NeededTopic:
    """The topic of a service's commands, with the broker's timestamps.

    One partition keeps the commands of every client in order, and carries many thousands a second.
    """
    return NeededTopic(name, partitions, must={"message.timestamp.type": "LogAppendTime"})


def admin_client(settings: str | ClientSettings) -> AdminClient:
    """An admin client, from settings that consumers and producers share."""
    given = {"log_level": 0, **with_bootstrap(settings)}
    return AdminClient(translate(given, "producer"))


def make_topics(admin: AdminClient, needed: Sequence[NeededTopic]) -> None:
    """Create the topics that are missing and correct the others; KafkaException if refused."""
    # Not asked for by name: that would create them, with the broker's default settings.
    known = admin.list_topics(timeout=ADMIN_SECONDS).topics
    missing = [topic for topic in needed if topic.name not in known]
    create_topics(admin, missing)
    _correct(admin, [topic for topic in needed if topic.must and topic not in missing])


def create_topics(
    admin: AdminClient, topics: Sequence[NeededTopic], timeout_s: float = ADMIN_SECONDS
) -> None:
    """Create topics; one that another process has just created is left as it is.

    TopicNotCreated if one is refused.
    """
    if not topics:
        return
    new = [
        NewTopic(topic.name, topic.partitions, -1, config={**topic.config, **topic.must})
        for topic in topics
    ]
    for name, future in admin.create_topics(new, request_timeout=timeout_s).items():
        try:
            future.result(2 * timeout_s)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicNotCreated(name, error) from None


def create_each(
    admin: AdminClient,
    names: Sequence[str],
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    *,
    if_not_exists: bool = False,
) -> Iterator[tuple[str, bool]]:
    """Create topics alike; yields each name and whether the topic is new.

    KafkaException if one is refused, and also if it exists, unless that is allowed.
    """
    new = [
        NewTopic(name, partitions, replication_factor, config=dict(config or {})) for name in names
    ]
    for name, future in admin.create_topics(new, request_timeout=ADMIN_SECONDS).items():
        try:
            future.result()
        except KafkaException as problem:
            exists = problem.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if not (exists and if_not_exists):
                raise
            yield name, False
        else:
            yield name, True


def alter_topic(
    admin: AdminClient,
    name: str,
    config: Mapping[str, str],
    defaults: Iterable[str] = (),
    partitions: int | None = None,
) -> None:
    """Change settings, set others back to their defaults, then grow to this many partitions.

    KafkaException if that is refused.
    """
    changes = [
        *_set_entries(config),
        *(
            ConfigEntry(setting, None, incremental_operation=AlterConfigOpType.DELETE)
            for setting in defaults
        ),
    ]
    if changes:
        _alter(admin, [ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)])
    if partitions is not None:
        for future in admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result(ADMIN_SECONDS)


def delete_each(admin: AdminClient, names: Sequence[str]) -> Iterator[str]:
    """Delete topics and yield the name of each that is deleted; KafkaException if refused."""
    for name, future in admin.delete_topics(list(names), request_timeout=ADMIN_SECONDS).items():
        future.result()
        yield name


def _correct(admin: AdminClient, topics: Sequence[NeededTopic]) -> None:
    if not topics:
        return
    asked = {ConfigResource(ResourceType.TOPIC, topic.name): topic for topic in topics}
    wrong: list[ConfigResource] = []
    for resource, future in admin.describe_configs(list(asked)).items():
        found: Mapping[str, Any] = future.result(ADMIN_SECONDS)
        topic = asked[resource]
        changes = _set_entries(
            {
                name: value
                for name, value in topic.must.items()
                if name not in found or found[name].value != value
            }
        )
        if changes:
            wrong.append(
                ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=changes)
            )
    if wrong:
        _alter(admin, wrong)


def _set_entries(config: Mapping[str, str]) -> list[ConfigEntry]:
    return [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]


def _alter(admin: AdminClient, resources: list[ConfigResource]) -> None:
    for future in admin.incremental_alter_configs(resources).values():
        future.result(ADMIN_SECONDS)
