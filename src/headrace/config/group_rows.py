"""Broker settings of consumer groups and their committed offsets."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX, Kind
from headrace.config.settings import ConfigError, Setting, Settings
from headrace.config.validators import at_least, between


def check_session_timeouts(settings: Settings) -> None:
    """Raise ConfigError if no session timeout lies between the least and the most."""
    low = settings.int("group.min.session.timeout.ms")
    high = settings.int("group.max.session.timeout.ms")
    if low > high:
        raise ConfigError(
            "group.min.session.timeout.ms",
            f"{low} is more than group.max.session.timeout.ms ({high})",
        )


GROUP_ROWS: tuple[Setting, ...] = (
    Setting(
        name="group.initial.rebalance.delay.ms",
        kind=Kind.INT,
        default=3000,
        valid=at_least(0),
        unit="ms",
        doc="How long an empty group waits for more members before its first rebalance.",
    ),
    Setting(
        name="group.min.session.timeout.ms",
        kind=Kind.INT,
        default=6000,
        valid=at_least(1),
        unit="ms",
        doc="The shortest session timeout that a member may ask for.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        kind=Kind.INT,
        default=1_800_000,
        valid=at_least(1),
        unit="ms",
        doc="The longest session timeout that a member may ask for.",
    ),
    Setting(
        name="group.max.size",
        kind=Kind.INT,
        default=INT_MAX,
        valid=at_least(1),
        doc="Members of one group; a further one is refused with GROUP_MAX_SIZE_REACHED.",
    ),
    Setting(
        name="offset.metadata.max.bytes",
        kind=Kind.INT,
        default=4096,
        valid=at_least(0),
        unit="bytes",
        doc="The longest text that may be committed beside an offset.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        kind=Kind.INT,
        default=5000,
        valid=at_least(1),
        unit="ms",
        doc="How long a commit may wait to become durable before it is answered with an error.",
    ),
    Setting(
        name="offsets.retention.minutes",
        kind=Kind.INT,
        default=7 * 24 * 60,
        valid=at_least(1),
        unit="minutes",
        doc="How long the offsets of an empty group are kept.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        kind=Kind.LONG,
        default=600_000,
        valid=at_least(1),
        unit="ms",
        doc="How often old offsets are looked for.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        kafka_default="50",
        doc="Partitions of `__consumer_offsets`; fixed once that topic exists. They spread groups "
        "over nodes; on one node, commits of all groups share a write and a sync if there is one.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        kind=Kind.INT,
        default=100 << 20,
        valid=at_least(14),
        unit="bytes",
        doc="Segment size of `__consumer_offsets`; small, so that it compacts and loads fast.",
    ),
    Setting(
        name="offsets.topic.compression.codec",
        kind=Kind.INT,
        default=0,
        valid=between(0, 4),
        doc="Codec of the batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, "
        "4 zstd.",
    ),
    Setting(
        name="offsets.topic.replication.factor",
        kind=Kind.SHORT,
        default=1,
        valid=at_least(1),
        kafka_default="3",
        inert="One node can hold one replica, so a larger value cannot be met; it is accepted "
        "and 1 is used.",
        doc="Replicas of `__consumer_offsets`.",
    ),
)
