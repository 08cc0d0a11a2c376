"""The topics of this node: created, grown, configured and deleted, in the catalog and on disk.

Changes are made one after the other, and each is finished even when the client that asked for it
is gone. The catalog is written first and the folders follow; `metadata/catalog.py` says what that
means for a crash in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.broker.log_config import log_config
from headrace.broker.stray_folders import rename_stray_folders
from headrace.config import ConfigError, Scope, Settings, Source, topic_settings
from headrace.metadata import ALL_BROKERS, StoreError, Topic
from headrace.metadata.planning import NewTopic, TopicRules, check_growth, plan_topics
from headrace.metadata.shielding import shielded
from headrace.metadata.topic_names import collision_key
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import LogConfig

if TYPE_CHECKING:
    from headrace.broker.node import Node

# Computes a resource's new settings from its own and its effective ones.
Alteration = Callable[[Mapping[str, str], Settings], dict[str, str]]

# Sets of topic settings whose log configuration is cached.
LOG_CONFIGS_MAX = 1000

log = logging.getLogger(__name__)


class TopicService:
    """Makes all changes to topics and to dynamic settings."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = asyncio.Lock()
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        # Names by collision key, to refuse a new name that is too much like an existing one.
        self._names = {collision_key(name): name for name in node.catalog.topics}
        for broker, source in self._broker_layers().items():
            node.settings.replace_layer(source, node.catalog.broker_configs.get(broker, {}))

    async def start(self) -> None:
        """Open the logs of every topic in the catalog and start serving them.

        Folders without a topic are renamed; folders that a crash prevented are created.
        Raises OSError if no data folder can be used.
        """
        node = self._node
        # Off the loop: recovery may take long, and a signal to stop must still be noticed.
        await node.run_read(self._load_logs)
        for topic in node.catalog.topics.values():
            for index in range(topic.partitions):
                found = node.logs.get(topic.name, index)
                if found is not None and found.topic_id == topic.id:
                    node.open_partition(topic.name, topic.id, index)
                else:
                    log.error("%s-%d is offline: its data folder is missing", topic.name, index)
                    node.partitions.add_offline(topic.name, topic.id, index)
        if not self._some_dir_is_missing:
            await node.catalog.forget_deleted(list(node.catalog.deleted))

    @property
    def _some_dir_is_missing(self) -> bool:
        logs = self._node.logs
        return bool(logs.lost) or any(log_dir.offline_error for log_dir in logs.dirs)

    def _load_logs(self) -> None:
        """Open the folders of topics, and create those that a crash prevented."""
        node = self._node
        for log_dir in node.logs.dirs:
            try:
                rename_stray_folders(node.logs.fs, log_dir.path, node.catalog)
            except OSError as error:
                # Opening its logs fails too, and takes the folder offline.
                log.error("cannot list %s: %s", log_dir.path, error)
        node.logs.load(self._log_config_of)
        if self._some_dir_is_missing:
            # A missing partition may be on the missing disk: a new folder would hide it.
            return
        for topic in node.catalog.topics.values():
            for index in range(topic.partitions):
                if node.logs.get(topic.name, index) is None:
                    node.logs.create(topic.name, index, topic.id, self.log_config(topic.config))

    def _log_config_of(self, topic: str) -> LogConfig:
        known = self._node.catalog.get(topic)
        return self.log_config({} if known is None else known.config)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Log configuration of a topic with these overrides."""
        key = frozenset(overrides.items())
        config = self._log_configs.get(key)
        if config is None:
            config = log_config(self._node.settings, overrides)
            if len(self._log_configs) == LOG_CONFIGS_MAX:
                self._log_configs.clear()
            self._log_configs[key] = config
        return config

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | KafkaError]:
        """Create topics; returns for each the topic, or why it was refused.

        Durable when it returns; on cancel the topics are still created.
        """
        if validate_only:
            return self._plan(wanted)
        return await shielded(self._create(wanted))

    async def create_internal(
        self, name: str, *, partitions: int, config: Mapping[str, str]
    ) -> Topic:
        """Return an internal topic, created if needed; raises KafkaError if that fails."""
        (outcome,) = await self.create([NewTopic(name, partitions, config={**config})])
        topic = self._node.catalog.get(name)
        if topic is None:
            assert isinstance(outcome, KafkaError)
            raise outcome
        return topic

    def _plan(self, wanted: Sequence[NewTopic]) -> list[Topic | KafkaError]:
        node = self._node
        partitions = node.settings.int("num.partitions")
        rules = TopicRules(node.cluster.node_id, partitions, self.log_config)
        return plan_topics(wanted, self._names, rules)

    async def _create(self, wanted: Sequence[NewTopic]) -> list[Topic | KafkaError]:
        async with self._lock:
            outcomes = self._plan(wanted)
            made = [topic for topic in outcomes if isinstance(topic, Topic)]
            if not made:
                return outcomes
            try:
                with _translated():
                    await self._node.catalog.create_topics(made, self._node.cluster.node_id)
            except KafkaError as error:
                return [error if isinstance(each, Topic) else each for each in outcomes]
            self._names |= {collision_key(topic.name): topic.name for topic in made}
            return [
                await self._open_new(each) if isinstance(each, Topic) else each for each in outcomes
            ]

    async def _open_new(self, topic: Topic) -> Topic | KafkaError:
        try:
            await self._open_partitions(topic, range(topic.partitions))
        except KafkaError as error:
            log.error("cannot create topic %s: %s", topic.name, error)
            await self._remove(topic)
            return error
        return topic

    async def _open_partitions(self, topic: Topic, indexes: range) -> None:
        """Create the folders of new partitions and serve them; raises KafkaError if the disk fails.

        All or none: when one cannot be created, those created before it are deleted again.
        """
        node, config = self._node, self.log_config(topic.config)
        made: list[int] = []
        try:
            with _translated():
                places = [(topic.name, index) for index in indexes]
                await node.run_read(node.logs.forget_deleted, places)
                for index in indexes:
                    node.logs.create(topic.name, index, topic.id, config)
                    made.append(index)
                    # Each takes a few file operations: yield to the loop in between.
                    await asyncio.sleep(0)
        except KafkaError:
            await self._delete_folders(topic, made)
            raise
        for index in indexes:
            node.open_partition(topic.name, topic.id, index)

    async def delete(self, name: str) -> None:
        """Delete a topic; raises KafkaError if it is refused.

        Durable when it returns; on cancel it is still deleted.
        """
        await shielded(self._delete(name))

    async def _delete(self, name: str) -> None:
        async with self._lock:
            topic = self._existing(name)
            if topic.internal:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' is an internal topic and cannot be deleted.",
                )
            await self._remove(topic)

    async def _remove(self, topic: Topic) -> None:
        with _translated():
            await self._node.catalog.delete_topic(topic.name)
        self._names.pop(collision_key(topic.name), None)
        self._node.partitions.remove(topic.name)
        self._node.groups.topic_deleted(topic.name)
        if await self._delete_folders(topic, range(topic.partitions)):
            try:
                await self._node.run_read(self._node.logs.sync_deletions)
                await self._node.catalog.forget_deleted([topic.id])
            except (OSError, StoreError) as error:
                log.warning("deleted topic %s is not forgotten yet: %s", topic.name, error)

    async def _delete_folders(self, topic: Topic, indexes: Sequence[int]) -> bool:
        """Delete folders of a topic; False if some are left, for the next start to delete."""
        try:
            for index in indexes:
                if self._node.logs.get(topic.name, index) is not None:
                    self._node.logs.delete(topic.name, index)
                    await asyncio.sleep(0)  # each is a rename: yield to the loop in between
        except OSError as error:
            log.warning("folders of topic %s are left over: %s", topic.name, error)
            return False
        return True

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Raise the number of partitions to `count`; raises KafkaError if it is refused.

        Durable when it returns; on cancel the partitions are still created.
        """
        node_id = self._node.cluster.node_id
        if validate_only:
            check_growth(self._existing(name), count, assignments, node_id)
        else:
            await shielded(self._grow(name, count, assignments, node_id))

    async def _grow(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, node_id: int
    ) -> None:
        async with self._lock:
            topic = self._existing(name)
            check_growth(topic, count, assignments, node_id)
            with _translated():
                grown = await self._node.catalog.set_partitions(name, count, node_id)
                try:
                    await self._open_partitions(grown, range(topic.partitions, count))
                except KafkaError:
                    await self._node.catalog.set_partitions(name, topic.partitions, node_id)
                    raise

    async def alter_topic(self, name: str, alter: Alteration, *, validate_only: bool) -> None:
        """Change a topic's own settings; raises KafkaError if it is refused.

        Its logs follow at once. Durable when it returns; on cancel the change still happens.
        """
        await shielded(self._alter_topic(name, alter, validate_only))

    async def _alter_topic(self, name: str, alter: Alteration, validate_only: bool) -> None:
        async with self._lock:
            topic = self._existing(name)
            with _translated():
                config = alter(topic.config, topic_settings(self._node.settings, topic.config))
                log_config = self.log_config(config)
                if not validate_only:
                    await self._node.catalog.set_topic_config(name, config)
                    for index in range(topic.partitions):
                        self._configure(name, index, log_config)

    async def alter_broker(
        self, broker_id: int | None, alter: Alteration, *, validate_only: bool
    ) -> None:
        """Change the dynamic settings of this broker, or of all (None); raises KafkaError.

        In effect and durable when it returns; on cancel the change still happens.
        """
        await shielded(self._alter_broker(broker_id, alter, validate_only))

    async def _alter_broker(
        self, broker_id: int | None, alter: Alteration, validate_only: bool
    ) -> None:
        node = self._node
        broker = ALL_BROKERS if broker_id is None else str(broker_id)
        source = self._broker_layers()[broker]
        async with self._lock:
            own = node.catalog.broker_configs.get(broker, {})
            with _translated():
                config = alter(own, node.settings)
                self._check_dynamic(source, own, config)
                node.settings.check_layer(source, config)
                if not validate_only:
                    await node.catalog.set_broker_config(broker, config)
                    if node.settings.replace_layer(source, config):
                        self._defaults_changed()

    def _check_dynamic(
        self, source: Source, own: Mapping[str, str], config: Mapping[str, str]
    ) -> None:
        """Raise KafkaError if a change needs a restart, or applies to a single broker only."""
        allowed = {Scope.CLUSTER_WIDE}
        if source is Source.DYNAMIC_BROKER:
            allowed.add(Scope.PER_BROKER)
        changed = {name for name in {*own, *config} if own.get(name) != config.get(name)}
        refused = sorted(
            name for name in changed if self._node.settings.rows.row(name).scope not in allowed
        )
        if refused:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: {', '.join(refused)}",
            )

    def _broker_layers(self) -> dict[str, Source]:
        return {
            str(self._node.cluster.node_id): Source.DYNAMIC_BROKER,
            ALL_BROKERS: Source.DYNAMIC_DEFAULT_BROKER,
        }

    def _defaults_changed(self) -> None:
        """Broker settings are the defaults of topics: their logs follow at once."""
        self._log_configs.clear()
        for topic in self._node.catalog.topics.values():
            config = self.log_config(topic.config)
            for index in range(topic.partitions):
                self._configure(topic.name, index, config)

    def _configure(self, topic: str, index: int, config: LogConfig) -> None:
        partition = self._node.partitions.get(topic, index)
        if partition is not None:
            partition.log.config = config

    def _existing(self, name: str) -> Topic:
        topic = self._node.catalog.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of settings, the store and the disk into Kafka's errors."""
    try:
        yield
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except (StoreError, OSError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {error}") from error
