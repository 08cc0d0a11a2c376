"""Topic settings: Kafka's names, kinds and defaults, each with the broker settings behind it."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX, LONG_MAX
from headrace.config.settings import (
    ConfigError,
    Fallback,
    Rows,
    Setting,
    Settings,
    Source,
    boolean,
    double,
    integer,
    listing,
    long,
    string,
)
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

NO_REPLICAS = "There is no replication yet: one node holds the only replica."

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _no_lag_conflict(settings: Settings) -> None:
    # Only the topic's own settings can be refused: a broker's default may change at any time.
    own = settings.layer(Source.TOPIC)
    low, high = settings.int("min.compaction.lag.ms"), settings.int("max.compaction.lag.ms")
    if low > high and {"min.compaction.lag.ms", "max.compaction.lag.ms"} <= own.keys():
        raise ConfigError(
            "min.compaction.lag.ms", f"{low} is more than max.compaction.lag.ms ({high})"
        )


# fmt: off
_ROWS: tuple[Setting, ...] = (
    listing("cleanup.policy", ("delete",),
        "What happens to old records: `delete` drops whole segments by age and size, `compact` "
        "keeps the last record of each key; both may be given.",
        some_of("delete", "compact"), fallbacks=(Fallback("log.cleanup.policy"),)),
    string("compression.type", "producer",
        "Codec of the batches on disk. `producer` stores every batch as it was sent; any other "
        "value recompresses batches that came in another codec.",
        one_of(*CODECS), fallbacks=(Fallback("compression.type"),)),
    integer("compression.gzip.level", -1,
        "Level used when batches are recompressed with gzip; -1 is the codec's own.",
        gzip_level(), fallbacks=(Fallback("compression.gzip.level"),)),
    integer("compression.lz4.level", 9,
        "Level used when batches are recompressed with lz4.",
        between(1, 17), fallbacks=(Fallback("compression.lz4.level"),)),
    integer("compression.zstd.level", 3,
        "Level used when batches are recompressed with zstd.",
        between(-131072, 22), fallbacks=(Fallback("compression.zstd.level"),)),
    long("delete.retention.ms", 24 * HOUR_MS,
        "How long a tombstone stays in a compacted topic after cleaning, so that a reader that "
        "began before it can still see the delete.",
        at_least(0), unit="ms", fallbacks=(Fallback("log.cleaner.delete.retention.ms"),)),
    long("file.delete.delay.ms", 60_000,
        "How long a deleted segment's files stay on disk under their `.deleted` name.",
        at_least(0), unit="ms", fallbacks=(Fallback("log.segment.delete.delay.ms"),)),
    long("flush.messages", 1,
        "At 1, `acks=all` is answered after the records are synced to disk, and readers see "
        "synced records only. Above 1, `acks=all` is answered after the write, readers may see "
        "records that are not synced, and a sync starts after this many records. Kafka leaves "
        "durability to replicas; a single node has none.",
        at_least(1), kafka_default=str(LONG_MAX),
        fallbacks=(Fallback("log.flush.interval.messages"),)),
    long("flush.ms", 50,
        "The latest time after a write at which a sync starts when nobody waits for one. Kafka "
        "leaves durability to replicas; a single node has none.",
        at_least(0), unit="ms", kafka_default=str(LONG_MAX),
        fallbacks=(Fallback("log.flush.interval.ms"),)),
    listing("follower.replication.throttled.replicas", (),
        "Follower replicas whose replication traffic is limited.",
        throttled_replicas(), inert=NO_REPLICAS),
    integer("index.interval.bytes", 4096,
        "Bytes of log between two entries of the sparse offset and time indexes.",
        at_least(0), unit="bytes", fallbacks=(Fallback("log.index.interval.bytes"),)),
    listing("leader.replication.throttled.replicas", (),
        "Leader replicas whose replication traffic is limited.",
        throttled_replicas(), inert=NO_REPLICAS),
    long("max.compaction.lag.ms", LONG_MAX,
        "The longest time a record of a compacted topic may stay uncompacted.",
        at_least(1), unit="ms", fallbacks=(Fallback("log.cleaner.max.compaction.lag.ms"),)),
    integer("max.message.bytes", 1_048_588,
        "The largest record batch (as sent, compressed) that a producer may append; a larger "
        "one is refused with MESSAGE_TOO_LARGE.",
        at_least(0), unit="bytes", fallbacks=(Fallback("message.max.bytes"),)),
    long("message.timestamp.after.max.ms", HOUR_MS,
        "How far a record's create time may be ahead of the broker's clock before the batch "
        "is refused with INVALID_TIMESTAMP.",
        at_least(0), unit="ms", fallbacks=(Fallback("log.message.timestamp.after.max.ms"),)),
    long("message.timestamp.before.max.ms", LONG_MAX,
        "How far a record's create time may be behind the broker's clock before the batch is "
        "refused with INVALID_TIMESTAMP.",
        at_least(0), unit="ms", fallbacks=(Fallback("log.message.timestamp.before.max.ms"),)),
    string("message.timestamp.type", "CreateTime",
        "Whether records keep the producer's time or get the broker's at append.",
        one_of("CreateTime", "LogAppendTime"), fallbacks=(Fallback("log.message.timestamp.type"),)),
    double("min.cleanable.dirty.ratio", 0.5,
        "The share of a compacted log that must be uncleaned before the cleaner takes it.",
        between(0, 1), fallbacks=(Fallback("log.cleaner.min.cleanable.ratio"),)),
    long("min.compaction.lag.ms", 0,
        "The shortest time a record stays uncompacted.",
        at_least(0), unit="ms", fallbacks=(Fallback("log.cleaner.min.compaction.lag.ms"),)),
    integer("min.insync.replicas", 1,
        "Replicas that must have a record before `acks=all` is answered. A single node has "
        "one: with a larger value `acks=all` is refused with NOT_ENOUGH_REPLICAS.",
        at_least(1), fallbacks=(Fallback("min.insync.replicas"),)),
    boolean("preallocate", False,
        "Reserve a new segment's whole size on disk when it is created, as far as there is "
        "room and the file system can; the unused part is given back when the segment is full or "
        "the broker stops.", fallbacks=(Fallback("log.preallocate"),)),
    long("retention.bytes", -1,
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        at_least(-1), unit="bytes", fallbacks=(Fallback("log.retention.bytes"),)),
    long("retention.ms", WEEK_MS,
        "Age of its newest record at which a segment is deleted; -1: no limit.",
        at_least(-1), unit="ms", fallbacks=(
            Fallback("log.retention.ms"), Fallback("log.retention.minutes", MINUTE_MS),
            Fallback("log.retention.hours", HOUR_MS))),
    integer("segment.bytes", 1 << 30,
        "Size at which the active segment is closed and a new one begun.",
        between(14, INT_MAX), unit="bytes", fallbacks=(Fallback("log.segment.bytes"),)),
    integer("segment.index.bytes", 10 << 20,
        "Size at which a full offset index closes its segment.",
        at_least(4), unit="bytes", fallbacks=(Fallback("log.index.size.max.bytes"),)),
    long("segment.jitter.ms", 0,
        "Up to this much is taken at random from `segment.ms`, so that partitions do not all "
        "roll at once.",
        at_least(0), unit="ms",
        fallbacks=(Fallback("log.roll.jitter.ms"), Fallback("log.roll.jitter.hours", HOUR_MS))),
    long("segment.ms", WEEK_MS,
        "Age at which the active segment is closed even if it is not full.",
        at_least(1), unit="ms",
        fallbacks=(Fallback("log.roll.ms"), Fallback("log.roll.hours", HOUR_MS))),
    boolean("unclean.leader.election.enable", False,
        "Whether a replica that lacks acknowledged records may become leader.",
        fallbacks=(Fallback("unclean.leader.election.enable"),), inert=NO_REPLICAS),
)
# fmt: on

TOPIC_ROWS = Rows("topic setting", _ROWS, rules=(_no_lag_conflict,))
