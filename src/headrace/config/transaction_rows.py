"""Broker settings of transactions and of the topic that keeps their state."""

from __future__ import annotations

from headrace.config.kinds import Kind
from headrace.config.node_rows import ONLY_ONE_REPLICA
from headrace.config.settings import Scope, Setting
from headrace.config.topic_rows import NO_REPLICAS
from headrace.config.validators import at_least

TRANSACTION_ROWS: tuple[Setting, ...] = (
    Setting(
        name="transaction.max.timeout.ms",
        kind=Kind.INT,
        default=15 * 60_000,
        valid=at_least(1),
        unit="ms",
        doc="The longest transaction timeout a producer may ask for; a longer one is refused "
        "with INVALID_TRANSACTION_TIMEOUT.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        kind=Kind.INT,
        default=10_000,
        valid=at_least(1),
        unit="ms",
        doc="A transaction is aborted as soon as its time is up; when that cannot be written, it "
        "is tried again after this long.",
    ),
    Setting(
        name="transactional.id.expiration.ms",
        kind=Kind.INT,
        default=7 * 24 * 3_600_000,
        valid=at_least(1),
        unit="ms",
        doc="How long an unused transactional id is remembered; one with an open transaction is "
        "never forgotten.",
    ),
    Setting(
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
        kind=Kind.INT,
        default=3_600_000,
        valid=at_least(1),
        unit="ms",
        doc="How often unused transactional ids are looked for.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        kind=Kind.BOOLEAN,
        default=True,
        scope=Scope.CLUSTER_WIDE,
        doc="Whether records of a transaction are taken only for partitions that were added to it "
        "before. Without it a late record of an older client can leave a transaction open that "
        "nobody ends before the next start.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        kind=Kind.INT,
        default=50,
        valid=at_least(1),
        doc="Partitions of `__transaction_state`, which is made when it is first needed.",
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        kind=Kind.INT,
        default=100 << 20,
        valid=at_least(14),
        unit="bytes",
        doc="Segment size of `__transaction_state`.",
    ),
    Setting(
        name="transaction.state.log.load.buffer.size",
        kind=Kind.INT,
        default=5 << 20,
        valid=at_least(1),
        unit="bytes",
        doc="How much of `__transaction_state` is read at a time when it is loaded.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        kind=Kind.SHORT,
        default=1,
        valid=at_least(1),
        kafka_default="3",
        inert=ONLY_ONE_REPLICA,
        doc="Replicas of `__transaction_state`.",
    ),
    Setting(
        name="transaction.state.log.min.isr",
        kind=Kind.INT,
        default=1,
        valid=at_least(1),
        kafka_default="2",
        inert=NO_REPLICAS,
        doc="In-sync replicas that `__transaction_state` needs for a write.",
    ),
)
