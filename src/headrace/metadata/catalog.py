"""The catalog: topics, settings and ids of a cluster, in memory and in the metadata store.

Paths and contents are those that Apache Kafka keeps in ZooKeeper. Every change is one atomic
`multi`; memory follows once it is durable. The order against the folders on disk:

* A topic is written here first, then its folders are created. After a crash in between, the start
  creates the missing folders.
* A topic is removed here first, and remembered as deleted in the same step; then its folders are
  deleted; then it is forgotten. After a crash in between, the start finishes the deletion. A folder
  that belongs to no topic and was never deleted is set aside, never served or removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.metadata.catalog_entries import (
    BROKER_CONFIGS,
    BROKER_EPOCH,
    CLUSTER_ID,
    DELETED_TOPICS,
    LOG_DIRS,
    PRODUCER_IDS,
    TOPIC_CONFIGS,
    TOPICS,
    CatalogError,
    DeletedTopic,
    Topic,
    dump_config,
    dump_deleted,
    dump_json,
    dump_topic,
    parse_config,
    parse_deleted,
    parse_json,
    parse_log_dirs,
    parse_topic,
)
from headrace.metadata.shielding import shielded
from headrace.metadata.store import (
    BadVersionError,
    Create,
    Delete,
    EntryExistsError,
    MetadataStore,
    Op,
    Set,
)

_FOLDERS = (
    "/admin",
    DELETED_TOPICS,
    "/brokers",
    TOPICS,
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    LOG_DIRS,
)

# Producer ids are reserved in blocks; after a crash the rest of a block is never used.
PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = 2**63 - 1


class Catalog:
    """An in-memory view of the cluster's metadata, changed only through the store.

    A change is finished even when its caller is cancelled, so memory never lags the store.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._next_producer_id = 0
        self._producer_ids_left = 0
        self._broker_config_versions: dict[str, int] = {}
        self.cluster_id = ""
        self.broker_epoch = 0
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.deleted: dict[bytes, DeletedTopic] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        #: The ids of the log dirs of each broker, by the path they were last seen at.
        self.log_dirs: dict[str, dict[str, str]] = {}

    @classmethod
    async def open(cls, store: MetadataStore, new_cluster_id: str) -> Catalog:
        """Read the whole catalog and start a new broker epoch; an empty store gets the given id."""
        catalog = cls(store)
        await catalog._load(new_cluster_id)
        return catalog

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    def get(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        return self.topics_by_id.get(topic_id)

    async def create_topics(self, topics: Sequence[Topic], leader: int) -> None:
        """Add topics, all or none; durable when it returns."""
        ops: list[Op] = []
        for topic in topics:
            ops.append(Create(f"{TOPICS}/{topic.name}", dump_topic(topic, leader)))
            ops.append(Create(f"{TOPIC_CONFIGS}/{topic.name}", dump_config(topic.config)))
        await shielded(self._change(ops, topics))

    async def delete_topic(self, name: str) -> DeletedTopic:
        """Remove a topic and remember that its folders must be deleted; durable when it returns."""
        topic = self.topics[name]
        gone = DeletedTopic(topic.name, topic.id, topic.partitions)
        ops: list[Op] = [
            Delete(f"{TOPICS}/{name}", topic.version),
            Delete(f"{TOPIC_CONFIGS}/{name}", topic.config_version),
            Create(f"{DELETED_TOPICS}/{topic.id.hex()}", dump_deleted(gone)),
        ]
        await shielded(self._change(ops, removed=gone))
        return gone

    async def forget_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Forget topics whose folders are gone."""
        known = [topic_id for topic_id in topic_ids if topic_id in self.deleted]
        if known:
            ops: list[Op] = [Delete(f"{DELETED_TOPICS}/{topic_id.hex()}") for topic_id in known]
            await shielded(self._change(ops, forgotten=known))

    async def set_partitions(self, name: str, partitions: int, leader: int) -> Topic:
        """Change a topic's number of partitions; durable when it returns."""
        topic = self.topics[name]
        grown = replace(topic, partitions=partitions, version=topic.version + 1)
        ops = [Set(f"{TOPICS}/{name}", dump_topic(grown, leader), topic.version)]
        await shielded(self._change(ops, [grown]))
        return grown

    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace a topic's settings; durable when it returns."""
        topic = self.topics[name]
        changed = replace(topic, config=dict(config), config_version=topic.config_version + 1)
        ops = [Set(f"{TOPIC_CONFIGS}/{name}", dump_config(config), topic.config_version)]
        await shielded(self._change(ops, [changed]))
        return changed

    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        """Replace the dynamic settings of one broker (by its id), or of ALL_BROKERS."""
        await shielded(self._set_broker_config(broker, config))

    async def _set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        path, data = f"{BROKER_CONFIGS}/{broker}", dump_config(config)
        async with self._lock:
            version = self._broker_config_versions.get(broker)
            op = Create(path, data) if version is None else Set(path, data, version)
            (self._broker_config_versions[broker],) = await self._store.multi([op])
            self.broker_configs[broker] = dict(config)

    async def set_log_dirs(self, broker: int, ids_by_path: Mapping[str, str]) -> None:
        """Remember the log dirs of a broker; durable when it returns."""
        if self.log_dirs.get(str(broker)) != ids_by_path:
            await shielded(self._set_log_dirs(str(broker), dict(ids_by_path)))

    async def _set_log_dirs(self, broker: str, ids_by_path: dict[str, str]) -> None:
        path, data = f"{LOG_DIRS}/{broker}", dump_json({"version": 1, "log_dirs": ids_by_path})
        async with self._lock:
            # Only the broker itself writes its entry.
            known = broker in self.log_dirs
            await self._store.multi([Set(path, data) if known else Create(path, data)])
            self.log_dirs[broker] = ids_by_path

    async def next_producer_id(self) -> int:
        """A producer id that was never used and never will be again, even after a crash."""
        while not self._producer_ids_left:
            await shielded(self._take_block())
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        self._producer_ids_left -= 1
        return producer_id

    async def _take_block(self) -> None:
        async with self._lock:
            while not self._producer_ids_left:
                entry = await self._store.read(PRODUCER_IDS)
                start = (
                    0 if entry is None else int(parse_json(PRODUCER_IDS, entry)["block_end"]) + 1
                )
                end = start + PRODUCER_ID_BLOCK - 1
                if end > PRODUCER_ID_MAX:
                    raise CatalogError("all producer ids are used up")
                data = dump_json({"version": 1, "block_start": str(start), "block_end": str(end)})
                op = (
                    Create(PRODUCER_IDS, data)
                    if entry is None
                    else Set(PRODUCER_IDS, data, entry.version)
                )
                try:
                    await self._store.multi([op])
                except (BadVersionError, EntryExistsError):
                    continue  # another node took this block
                self._next_producer_id, self._producer_ids_left = start, PRODUCER_ID_BLOCK

    async def _change(
        self,
        ops: Sequence[Op],
        topics: Iterable[Topic] = (),
        *,
        removed: DeletedTopic | None = None,
        forgotten: Iterable[bytes] = (),
    ) -> None:
        async with self._lock:
            await self._store.multi(ops)
            for topic in topics:
                self._remember(topic)
            if removed is not None:
                del self.topics[removed.name]
                del self.topics_by_id[removed.id]
                self.deleted[removed.id] = removed
            for topic_id in forgotten:
                del self.deleted[topic_id]

    def _remember(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic

    async def _load(self, new_cluster_id: str) -> None:
        cluster = await self._store.read(CLUSTER_ID)
        if cluster is None:
            await self._create_cluster(new_cluster_id)
            self.cluster_id, self.broker_epoch = new_cluster_id, 1
            return
        self.cluster_id = str(parse_json(CLUSTER_ID, cluster)["id"])
        await self._begin_epoch()
        configs = await self._store.read_children(TOPIC_CONFIGS)
        for name, entry in (await self._store.read_children(TOPICS)).items():
            self._remember(parse_topic(name, entry, configs))
        for name, entry in (await self._store.read_children(BROKER_CONFIGS)).items():
            self.broker_configs[name] = parse_config(f"{BROKER_CONFIGS}/{name}", entry)
            self._broker_config_versions[name] = entry.version
        if await self._store.read(LOG_DIRS) is None:
            await self._store.multi([Create(LOG_DIRS)])  # the store is older than log dir ids
        for broker, entry in (await self._store.read_children(LOG_DIRS)).items():
            self.log_dirs[broker] = parse_log_dirs(f"{LOG_DIRS}/{broker}", entry)
        for topic_hex, entry in (await self._store.read_children(DELETED_TOPICS)).items():
            gone = parse_deleted(topic_hex, entry)
            self.deleted[gone.id] = gone

    async def _create_cluster(self, cluster_id: str) -> None:
        """Write the first entries of an empty store, in one change."""
        ops: list[Op] = [Create(path) for path in _FOLDERS]
        ops.append(Create(CLUSTER_ID, dump_json({"version": "1", "id": cluster_id})))
        ops.append(Create(BROKER_EPOCH, b"1"))
        await self._store.multi(ops)

    async def _begin_epoch(self) -> None:
        entry = await self._store.read(BROKER_EPOCH)
        if entry is None:
            raise CatalogError(f"{BROKER_EPOCH} is missing")
        self.broker_epoch = int(entry.data) + 1
        await self._store.multi([Set(BROKER_EPOCH, b"%d" % self.broker_epoch, entry.version)])
