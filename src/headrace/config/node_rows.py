"""Broker settings of the node itself: its id, its folders, topics made on it."""

from __future__ import annotations

from headrace.config.kinds import Kind
from headrace.config.settings import ConfigError, Scope, Setting, Settings
from headrace.config.topic_rows import NO_REPLICAS
from headrace.config.validators import (
    at_least,
    not_empty,
    one_of,
    some_of,
    unlimited_or_at_least,
)

ONLY_ONE_REPLICA = (
    "One node can hold one replica, so a larger value cannot be met; it is accepted and 1 is used."
)


def node_id(settings: Settings) -> int:
    """This node's id: `node.id`, or `broker.id` when only that is set."""
    old = settings.int("broker.id")
    if old >= 0 and settings.is_default("node.id"):
        return old
    return settings.int("node.id")


def log_dirs(settings: Settings) -> list[str]:
    """The data folders: `log.dirs`, or `log.dir`; raises ConfigError when neither is set."""
    dirs = settings.list("log.dirs")
    single = settings.optional_str("log.dir")
    if not dirs and single:
        dirs = [single]
    if not dirs:
        raise ConfigError("log.dirs", "not set: name at least one folder for the data")
    if len(set(dirs)) != len(dirs):
        raise ConfigError("log.dirs", "a folder is given twice")
    return dirs


def metadata_dir(settings: Settings) -> str:
    """The folder of the metadata store: `metadata.log.dir`, or the first data folder."""
    return settings.optional_str("metadata.log.dir") or log_dirs(settings)[0]


def check_node_id(settings: Settings) -> None:
    """Raise ConfigError if `node.id` and `broker.id` name different nodes."""
    new, old = settings.int("node.id"), settings.int("broker.id")
    if old >= 0 and old != new and not settings.is_default("node.id"):
        raise ConfigError("broker.id", f"{old} is not the same as node.id ({new})")


NODE_ROWS: tuple[Setting, ...] = (
    Setting(
        name="node.id",
        kind=Kind.INT,
        default=1,
        valid=at_least(0),
        kafka_default="none",
        doc="This node's id in the cluster. It has a default so that a single node needs no "
        "configuration.",
    ),
    Setting(
        name="broker.id",
        kind=Kind.INT,
        default=-1,
        valid=unlimited_or_at_least(0),
        doc="Older name of `node.id`, used when that is not set; -1: not set.",
    ),
    Setting(
        name="broker.rack",
        kind=Kind.STRING,
        default=None,
        doc="Where this node stands; told to clients in Metadata answers.",
    ),
    Setting(
        name="log.dirs",
        kind=Kind.LIST,
        default=None,
        valid=not_empty(),
        doc="Folders for the data, separated by commas; a new partition goes to the folder with "
        "the fewest. When not set, `log.dir` is used.",
    ),
    Setting(
        name="log.dir",
        kind=Kind.STRING,
        default=None,
        valid=not_empty(),
        kafka_default="/tmp/kafka-logs",
        doc="Folder for the data when `log.dirs` is not set. It has no default, because data in "
        "a temporary folder is not durable.",
    ),
    Setting(
        name="metadata.log.dir",
        kind=Kind.STRING,
        default=None,
        valid=not_empty(),
        doc="Folder of the metadata store; when not set, the first of `log.dirs`.",
    ),
    Setting(
        name="headrace.services",
        kind=Kind.LIST,
        default=("delay", "half", "relay", "lag"),
        valid=some_of("delay", "half", "relay", "lag"),
        doc="Services that `headrace up` runs, a process for each: delay and half from the moment "
        "that `headrace.delay` or `headrace.half` is there, lag when there are groups, relay when "
        "HEADRACE_STORE names its store. Empty for none; `headrace broker` runs none.",
    ),
    Setting(
        name="num.partitions",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        doc="Partitions of a topic that is made without saying how many.",
    ),
    Setting(
        name="auto.create.topics.enable",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether asking for the metadata of an unknown topic makes it (when the client "
        "allows that).",
    ),
    Setting(
        name="delete.topic.enable",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether topics may be deleted; when false, DeleteTopics is refused.",
    ),
    Setting(
        name="compression.type",
        kind=Kind.STRING,
        default="producer",
        valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        scope=Scope.CLUSTER_WIDE,
        doc="Default of the topic setting of the same name.",
    ),
    Setting(
        name="default.replication.factor",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        inert=ONLY_ONE_REPLICA,
        doc="Replicas of a topic that is made without saying how many.",
    ),
    Setting(
        name="min.insync.replicas",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Default of the topic setting of the same name.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind=Kind.BOOLEAN,
        default=False,
        scope=Scope.CLUSTER_WIDE,
        inert=NO_REPLICAS,
        doc="Default of the topic setting of the same name.",
    ),
    Setting(
        name="auto.leader.rebalance.enable",
        kind=Kind.BOOLEAN,
        default=True,
        inert=NO_REPLICAS,
        doc="Whether leadership moves back to preferred replicas by itself.",
    ),
    Setting(
        name="num.replica.fetchers",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        inert=NO_REPLICAS,
        doc="Connections per leader that followers fetch with.",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        kind=Kind.INT,
        default=1 << 20,
        valid=at_least(0),
        unit="bytes",
        inert=NO_REPLICAS,
        doc="Bytes per partition that a follower asks for at a time.",
    ),
    Setting(
        name="replica.lag.time.max.ms",
        kind=Kind.LONG,
        default=30_000,
        valid=at_least(1),
        unit="ms",
        inert=NO_REPLICAS,
        doc="How long a follower may lag before it leaves the in-sync set.",
    ),
    Setting(
        name="controlled.shutdown.enable",
        kind=Kind.BOOLEAN,
        default=True,
        inert=NO_REPLICAS,
        doc="Whether a stopping node first hands leadership over.",
    ),
    Setting(
        name="num.recovery.threads.per.data.dir",
        kind=Kind.INT,
        default=2,
        valid=at_least(1),
        inert="Logs are opened one after the other; only those not closed cleanly are scanned.",
        doc="Threads that open logs at start and sync them at stop.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        kind=Kind.INT,
        default=86_400_000,
        valid=at_least(1),
        unit="ms",
        scope=Scope.CLUSTER_WIDE,
        doc="How long a partition remembers an idle producer's last sequence numbers.",
    ),
)
