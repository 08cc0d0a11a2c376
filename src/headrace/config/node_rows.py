"""Broker settings of the node itself: its id, its folders, new topics."""

from __future__ import annotations

from headrace.config.settings import (
    ConfigError,
    Scope,
    Setting,
    Settings,
    boolean,
    integer,
    listing,
    long,
    string,
)
from headrace.config.topic_rows import NO_REPLICAS
from headrace.config.validators import (
    at_least,
    not_empty,
    some_of,
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
        raise ConfigError("log.dirs", "not set; give at least one folder for the data")
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


# fmt: off
NODE_ROWS: tuple[Setting, ...] = (
    integer("node.id", 1,
        "This node's id in the cluster. It has a default so that a single node needs no "
        "configuration.", at_least(0), kafka_default="none"),
    integer("broker.id", -1,
        "Older name of `node.id`, used when that is not set; -1: not set.",
        at_least(-1)),
    string("broker.rack", None,
        "The rack of this node, as clients see it in Metadata responses."),
    listing("log.dirs", None,
        "Folders for the data, separated by commas; a new partition goes to the folder with the "
        "fewest. When not set, `log.dir` is used.", not_empty()),
    string("log.dir", None,
        "Folder for the data when `log.dirs` is not set. It has no default, because data in a "
        "temporary folder is not durable.", not_empty(), kafka_default="/tmp/kafka-logs"),
    string("metadata.log.dir", None,
        "Folder of the metadata store; when not set, the first of `log.dirs`.", not_empty()),
    listing("headrace.services", ("delay", "half", "relay", "lag"),
        "Services that `headrace up` runs, a process for each: delay and half once "
        "`headrace.delay` or `headrace.half` exists, lag once there are groups, relay when "
        "HEADRACE_STORE names its store. Empty for none; `headrace broker` runs none.",
        some_of("delay", "half", "relay", "lag")),
    integer("num.partitions", 1,
        "Partitions of a topic that is created without a number of partitions.", at_least(1)),
    boolean("auto.create.topics.enable", True,
        "Whether asking for the metadata of an unknown topic creates it, if the client "
        "allows that."),
    boolean("delete.topic.enable", True,
        "Whether topics may be deleted; when false, DeleteTopics is refused."),
    integer("default.replication.factor", 1,
        "Replicas of a topic that is created without a number of replicas.",
        at_least(1), inert=ONLY_ONE_REPLICA),
    boolean("auto.leader.rebalance.enable", True,
        "Whether leadership moves back to preferred replicas by itself.", inert=NO_REPLICAS),
    integer("num.replica.fetchers", 1,
        "Connections per leader that followers fetch with.", at_least(1), inert=NO_REPLICAS),
    integer("replica.fetch.max.bytes", 1 << 20,
        "Bytes per partition that a follower asks for at a time.",
        at_least(0), unit="bytes", inert=NO_REPLICAS),
    long("replica.lag.time.max.ms", 30_000,
        "How long a follower may lag before it leaves the in-sync set.",
        at_least(1), unit="ms", inert=NO_REPLICAS),
    boolean("controlled.shutdown.enable", True,
        "Whether a stopping node first hands leadership over.", inert=NO_REPLICAS),
    integer("num.recovery.threads.per.data.dir", 2,
        "Threads that open logs at start and sync them at stop.",
        at_least(1),
        inert="Logs are opened one after the other; only those not closed cleanly are scanned."),
    integer("producer.id.expiration.ms", 86_400_000,
        "How long a partition remembers an idle producer's last sequence numbers.",
        at_least(1), unit="ms", scope=Scope.CLUSTER_WIDE),
)
# fmt: on
