"""Topic settings: Kafka's names, kinds and defaults, each with the broker settings behind it."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX, LONG_MAX, Kind
from headrace.config.settings import ConfigError, Rows, Setting, Settings, Source, Twin
from headrace.config.validators import (
    at_least,
    between,
    gzip_level,
    one_of,
    some_of,
    throttled_replicas,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * 24 * HOUR_MS

NO_REPLICAS = "Replication is not there yet: one node holds the only replica."

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _no_lag_conflict(settings: Settings) -> None:
    # Only what the topic says itself can be refused: a broker's default may change at any time.
    own = settings.layer(Source.TOPIC)
    low, high = settings.int("min.compaction.lag.ms"), settings.int("max.compaction.lag.ms")
    if low > high and {"min.compaction.lag.ms", "max.compaction.lag.ms"} <= own.keys():
        raise ConfigError(
            "min.compaction.lag.ms", f"{low} is more than max.compaction.lag.ms ({high})"
        )


TOPIC_ROWS = Rows(
    noun="topic setting",
    rules=(_no_lag_conflict,),
    rows=(
        Setting(
            name="cleanup.policy",
            kind=Kind.LIST,
            default=("delete",),
            valid=some_of("delete", "compact"),
            twins=(Twin("log.cleanup.policy"),),
            doc="What happens to old records: `delete` drops whole segments by age and size, "
            "`compact` keeps the last record of each key; both may be given.",
        ),
        Setting(
            name="compression.type",
            kind=Kind.STRING,
            default="producer",
            valid=one_of(*CODECS),
            twins=(Twin("compression.type"),),
            doc="Codec of the batches on disk. `producer` stores every batch as it was sent; any "
            "other value recompresses batches that came in another codec.",
        ),
        Setting(
            name="compression.gzip.level",
            kind=Kind.INT,
            default=-1,
            valid=gzip_level(),
            twins=(Twin("compression.gzip.level"),),
            doc="Level used when batches are recompressed with gzip; -1 is the codec's own.",
        ),
        Setting(
            name="compression.lz4.level",
            kind=Kind.INT,
            default=9,
            valid=between(1, 17),
            twins=(Twin("compression.lz4.level"),),
            doc="Level used when batches are recompressed with lz4.",
        ),
        Setting(
            name="compression.zstd.level",
            kind=Kind.INT,
            default=3,
            valid=between(-131072, 22),
            twins=(Twin("compression.zstd.level"),),
            doc="Level used when batches are recompressed with zstd.",
        ),
        Setting(
            name="delete.retention.ms",
            kind=Kind.LONG,
            default=24 * HOUR_MS,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.cleaner.delete.retention.ms"),),
            doc="How long a tombstone stays in a compacted topic after cleaning, so that a reader "
            "that began before it can still see the delete.",
        ),
        Setting(
            name="file.delete.delay.ms",
            kind=Kind.LONG,
            default=60_000,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.segment.delete.delay.ms"),),
            doc="How long a deleted segment's files stay on disk under their `.deleted` name.",
        ),
        Setting(
            name="flush.messages",
            kind=Kind.LONG,
            default=1,
            valid=at_least(1),
            kafka_default=str(LONG_MAX),
            twins=(Twin("log.flush.interval.messages"),),
            doc="At 1, `acks=all` is answered after the records are synced to disk, and readers "
            "see synced records only. Above 1, `acks=all` is answered after the write, readers "
            "may see records that are not synced, and a sync starts after that many records. "
            "Kafka leaves durability to replicas; a single node has none.",
        ),
        Setting(
            name="flush.ms",
            kind=Kind.LONG,
            default=50,
            valid=at_least(0),
            unit="ms",
            kafka_default=str(LONG_MAX),
            twins=(Twin("log.flush.interval.ms"),),
            doc="The latest time after a write at which a sync starts when nobody waits for one. "
            "Kafka leaves durability to replicas; a single node has none.",
        ),
        Setting(
            name="follower.replication.throttled.replicas",
            kind=Kind.LIST,
            default=(),
            valid=throttled_replicas(),
            inert=NO_REPLICAS,
            doc="Follower replicas whose replication traffic is limited.",
        ),
        Setting(
            name="index.interval.bytes",
            kind=Kind.INT,
            default=4096,
            valid=at_least(0),
            unit="bytes",
            twins=(Twin("log.index.interval.bytes"),),
            doc="Bytes of log between two entries of the sparse offset and time indexes.",
        ),
        Setting(
            name="leader.replication.throttled.replicas",
            kind=Kind.LIST,
            default=(),
            valid=throttled_replicas(),
            inert=NO_REPLICAS,
            doc="Leader replicas whose replication traffic is limited.",
        ),
        Setting(
            name="max.compaction.lag.ms",
            kind=Kind.LONG,
            default=LONG_MAX,
            valid=at_least(1),
            unit="ms",
            twins=(Twin("log.cleaner.max.compaction.lag.ms"),),
            doc="The longest time a record of a compacted topic may stay uncompacted.",
        ),
        Setting(
            name="max.message.bytes",
            kind=Kind.INT,
            default=1_048_588,
            valid=at_least(0),
            unit="bytes",
            twins=(Twin("message.max.bytes"),),
            doc="The largest record batch (as sent, compressed) that a producer may append; a "
            "larger one is refused with MESSAGE_TOO_LARGE.",
        ),
        Setting(
            name="message.timestamp.after.max.ms",
            kind=Kind.LONG,
            default=HOUR_MS,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.message.timestamp.after.max.ms"),),
            doc="How far a record's create time may lie ahead of the broker's clock before the "
            "batch is refused with INVALID_TIMESTAMP.",
        ),
        Setting(
            name="message.timestamp.before.max.ms",
            kind=Kind.LONG,
            default=LONG_MAX,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.message.timestamp.before.max.ms"),),
            doc="How far a record's create time may lie behind the broker's clock before the "
            "batch is refused with INVALID_TIMESTAMP.",
        ),
        Setting(
            name="message.timestamp.type",
            kind=Kind.STRING,
            default="CreateTime",
            valid=one_of("CreateTime", "LogAppendTime"),
            twins=(Twin("log.message.timestamp.type"),),
            doc="Whether records keep the producer's time or get the broker's at append.",
        ),
        Setting(
            name="min.cleanable.dirty.ratio",
            kind=Kind.DOUBLE,
            default=0.5,
            valid=between(0, 1),
            twins=(Twin("log.cleaner.min.cleanable.ratio"),),
            doc="The share of a compacted log that must be uncleaned before the cleaner takes it.",
        ),
        Setting(
            name="min.compaction.lag.ms",
            kind=Kind.LONG,
            default=0,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.cleaner.min.compaction.lag.ms"),),
            doc="The shortest time a record stays uncompacted.",
        ),
        Setting(
            name="min.insync.replicas",
            kind=Kind.INT,
            default=1,
            valid=at_least(1),
            twins=(Twin("min.insync.replicas"),),
            doc="Replicas that must have a record before `acks=all` is answered. A single node "
            "has one: with a larger value `acks=all` is refused with NOT_ENOUGH_REPLICAS.",
        ),
        Setting(
            name="preallocate",
            kind=Kind.BOOLEAN,
            default=False,
            twins=(Twin("log.preallocate"),),
            doc="Reserve a new segment's whole size on disk when it is made, as far as there is "
            "room and the file system can; what is left of it is given back when the segment is "
            "full or the broker stops.",
        ),
        Setting(
            name="retention.bytes",
            kind=Kind.LONG,
            default=-1,
            valid=at_least(-1),
            unit="bytes",
            twins=(Twin("log.retention.bytes"),),
            doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
        ),
        Setting(
            name="retention.ms",
            kind=Kind.LONG,
            default=WEEK_MS,
            valid=at_least(-1),
            unit="ms",
            twins=(
                Twin("log.retention.ms"),
                Twin("log.retention.minutes", MINUTE_MS),
                Twin("log.retention.hours", HOUR_MS),
            ),
            doc="Age of its newest record at which a segment is deleted; -1: no limit.",
        ),
        Setting(
            name="segment.bytes",
            kind=Kind.INT,
            default=1 << 30,
            valid=between(14, INT_MAX),
            unit="bytes",
            twins=(Twin("log.segment.bytes"),),
            doc="Size at which the active segment is closed and a new one begun.",
        ),
        Setting(
            name="segment.index.bytes",
            kind=Kind.INT,
            default=10 << 20,
            valid=at_least(4),
            unit="bytes",
            twins=(Twin("log.index.size.max.bytes"),),
            doc="Size at which a full offset index closes its segment.",
        ),
        Setting(
            name="segment.jitter.ms",
            kind=Kind.LONG,
            default=0,
            valid=at_least(0),
            unit="ms",
            twins=(Twin("log.roll.jitter.ms"), Twin("log.roll.jitter.hours", HOUR_MS)),
            doc="Up to this much is taken at random from `segment.ms`, so that partitions do not "
            "all roll at once.",
        ),
        Setting(
            name="segment.ms",
            kind=Kind.LONG,
            default=WEEK_MS,
            valid=at_least(1),
            unit="ms",
            twins=(Twin("log.roll.ms"), Twin("log.roll.hours", HOUR_MS)),
            doc="Age at which the active segment is closed even if it is not full.",
        ),
        Setting(
            name="unclean.leader.election.enable",
            kind=Kind.BOOLEAN,
            default=False,
            twins=(Twin("unclean.leader.election.enable"),),
            inert=NO_REPLICAS,
            doc="Whether a replica that lacks acknowledged records may become leader.",
        ),
    ),
)
