"""Broker settings of the log: defaults of the topic settings, retention checks, the cleaner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.config.kinds import DOUBLE_MAX, LONG_MAX, Kind
from headrace.config.settings import Scope, Setting, boolean, double, integer, listing, long
from headrace.config.topic_rows import TOPIC_ROWS
from headrace.config.validators import at_least, between, unlimited_or_at_least


def default_of(name: str, topic_setting: str, more: str = "", **other: Any) -> Setting:
    """The broker setting that a topic setting falls back on; `other` is what differs in it."""
    doc = f"Default of the topic setting `{topic_setting}`. {more}".rstrip()
    row = replace(TOPIC_ROWS.row(topic_setting), name=name, doc=doc, fallbacks=())
    return replace(row, **{"scope": Scope.CLUSTER_WIDE, **other})


# fmt: off
LOG_ROWS: tuple[Setting, ...] = (
    default_of("compression.gzip.level", "compression.gzip.level"),
    default_of("compression.lz4.level", "compression.lz4.level"),
    default_of("compression.zstd.level", "compression.zstd.level"),
    listing("headrace.log.dirs.lost", (),
        "Ids of data folders that are gone for good. While a known folder is missing, partitions "
        "that are in no other folder are offline. The broker logs the folder's id; naming it here "
        "creates these partitions again, empty."),
    default_of("log.cleanup.policy", "cleanup.policy"),
    boolean("log.cleaner.enable", True,
        "Whether compacted topics are compacted."),
    integer("log.cleaner.threads", 1,
        "Worker processes that compact logs, one log each at a time.", between(1, 64)),
    long("log.cleaner.backoff.ms", 15_000,
        "Pause of the cleaner when no log is dirty enough.", at_least(0), unit="ms"),
    long("log.cleaner.dedupe.buffer.size", 128 << 20,
        "Memory for the cleaner's map of keys to offsets, over all of its workers; a log with more "
        "keys takes several rounds.", at_least(1 << 20), unit="bytes"),
    double("log.cleaner.io.buffer.load.factor", 0.9,
        "How full the cleaner's map may get.", between(0.05, 0.95)),
    integer("log.cleaner.io.buffer.size", 512 << 10,
        "Size of the cleaner's reads and writes, over all of its workers.",
        at_least(1024), unit="bytes"),
    double("log.cleaner.io.max.bytes.per.second", DOUBLE_MAX,
        "The most that the cleaner reads and writes per second.", at_least(1024), unit="bytes/s"),
    default_of("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    default_of("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    default_of("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    default_of("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    default_of("log.flush.interval.messages", "flush.messages",
        "At 1, `acks=all` means synced to disk."),
    default_of("log.flush.interval.ms", "flush.ms",
        "A single node has no replicas to leave durability to.", kafka_default="none"),
    integer("log.flush.offset.checkpoint.interval.ms", 60_000,
        "How often the recovery points are saved; after a crash, logs are checked from "
        "there.", at_least(1), unit="ms"),
    integer("log.flush.start.offset.checkpoint.interval.ms", 60_000,
        "How often the start offsets of the logs are saved.",
        at_least(1), unit="ms", inert="They are written together with the recovery points."),
    default_of("log.index.interval.bytes", "index.interval.bytes"),
    default_of("log.index.size.max.bytes", "segment.index.bytes"),
    default_of("log.message.timestamp.type", "message.timestamp.type"),
    default_of("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    default_of("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    default_of("log.preallocate", "preallocate"),
    default_of("log.retention.bytes", "retention.bytes"),
    default_of("log.retention.ms", "retention.ms",
        "When not set, `log.retention.minutes` is used.",
        default=None, valid=unlimited_or_at_least(1)),
    default_of("log.retention.minutes", "retention.ms",
        "When not set, `log.retention.hours` is used.", default=None, kind=Kind.INT,
        valid=unlimited_or_at_least(1), unit="minutes", scope=Scope.READ_ONLY),
    default_of("log.retention.hours", "retention.ms",
        "Used when neither `log.retention.ms` nor `log.retention.minutes` is set.", default=168,
        kind=Kind.INT, valid=unlimited_or_at_least(1), unit="hours", scope=Scope.READ_ONLY),
    long("log.retention.check.interval.ms", 300_000,
        "How often segments are checked for deletion by age and size.", at_least(1), unit="ms"),
    long("log.initial.task.delay.ms", 30_000,
        "How long after the start the first retention check and checkpoint are made.",
        at_least(0), unit="ms"),
    default_of("log.roll.ms", "segment.ms", "When not set, `log.roll.hours` is used.",
        default=None),
    default_of("log.roll.hours", "segment.ms", "Used when `log.roll.ms` is not set.",
        default=168, kind=Kind.INT, unit="hours", scope=Scope.READ_ONLY),
    default_of("log.roll.jitter.ms", "segment.jitter.ms",
        "When not set, `log.roll.jitter.hours` is used.", default=None),
    default_of("log.roll.jitter.hours", "segment.jitter.ms",
        "Used when `log.roll.jitter.ms` is not set.",
        kind=Kind.INT, unit="hours", scope=Scope.READ_ONLY),
    default_of("log.segment.bytes", "segment.bytes", valid=at_least(14)),
    default_of("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    default_of("message.max.bytes", "max.message.bytes"),
    default_of("compression.type", "compression.type"),
    default_of("min.insync.replicas", "min.insync.replicas"),
    default_of("unclean.leader.election.enable", "unclean.leader.election.enable"),
    long("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX,
        "The most that is copied per second for partitions that move to another data folder.",
        at_least(1), unit="bytes/s", scope=Scope.CLUSTER_WIDE),
)
# fmt: on
