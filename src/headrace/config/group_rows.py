"""Broker settings of consumer groups and their committed offsets."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX
from headrace.config.node_rows import ONLY_ONE_REPLICA
from headrace.config.settings import ConfigError, Setting, Settings, integer, long, short
from headrace.config.validators import at_least, between


def check_session_timeouts(settings: Settings) -> None:
    """Raise ConfigError if the shortest session timeout is longer than the longest."""
    low = settings.int("group.min.session.timeout.ms")
    high = settings.int("group.max.session.timeout.ms")
    if low > high:
        raise ConfigError(
            "group.min.session.timeout.ms",
            f"{low} is more than group.max.session.timeout.ms ({high})",
        )


# fmt: off
GROUP_ROWS: tuple[Setting, ...] = (
    integer("group.initial.rebalance.delay.ms", 3000,
        "How long an empty group waits for more members before its first rebalance.",
        at_least(0), unit="ms"),
    integer("group.min.session.timeout.ms", 6000,
        "The shortest session timeout that a member may ask for.", at_least(1), unit="ms"),
    integer("group.max.session.timeout.ms", 1_800_000,
        "The longest session timeout that a member may ask for.", at_least(1), unit="ms"),
    integer("group.max.size", INT_MAX,
        "The most members of one group; a further one is refused with GROUP_MAX_SIZE_REACHED.",
        at_least(1)),
    integer("offset.metadata.max.bytes", 4096,
        "The longest text that may be committed beside an offset.", at_least(0), unit="bytes"),
    integer("offsets.commit.timeout.ms", 5000,
        "How long a commit may wait to become durable before it is answered with an error.",
        at_least(1), unit="ms"),
    integer("offsets.retention.minutes", 7 * 24 * 60,
        "How long the offsets of an empty group are kept.", at_least(1), unit="minutes"),
    long("offsets.retention.check.interval.ms", 600_000,
        "How often expired offsets are removed.", at_least(1), unit="ms"),
    integer("offsets.topic.num.partitions", 1,
        "Partitions of `__consumer_offsets`; fixed once that topic exists. They spread groups over "
        "nodes; on one node, commits of all groups share a write and a sync if there is one.",
        at_least(1), kafka_default="50"),
    integer("offsets.topic.segment.bytes", 100 << 20,
        "Segment size of `__consumer_offsets`; small, so that it compacts and loads fast.",
        at_least(14), unit="bytes"),
    integer("offsets.topic.compression.codec", 0,
        "Codec of the batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4)),
    short("offsets.topic.replication.factor", 1,
        "Replicas of `__consumer_offsets`.",
        at_least(1), kafka_default="3", inert=ONLY_ONE_REPLICA),
)
# fmt: on
