"""Broker settings of transactions and of the topic that keeps their state."""

from __future__ import annotations

from headrace.config.node_rows import ONLY_ONE_REPLICA
from headrace.config.settings import Scope, Setting, boolean, integer, short
from headrace.config.topic_rows import NO_REPLICAS
from headrace.config.validators import at_least

# fmt: off
TRANSACTION_ROWS: tuple[Setting, ...] = (
    integer("transaction.max.timeout.ms", 15 * 60_000,
        "The longest transaction timeout a producer may ask for; a longer one is refused with "
        "INVALID_TRANSACTION_TIMEOUT.", at_least(1), unit="ms"),
    integer("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000,
        "A transaction is aborted as soon as its time is up. If the abort cannot be written, it is "
        "tried again after this long.", at_least(1), unit="ms"),
    integer("transactional.id.expiration.ms", 7 * 24 * 3_600_000,
        "How long an unused transactional id is remembered; one with an open transaction is never "
        "forgotten.", at_least(1), unit="ms"),
    integer("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000,
        "How often unused transactional ids are removed.", at_least(1), unit="ms"),
    boolean("transaction.partition.verification.enable", True,
        "Whether records of a transaction are accepted only in partitions that were added to it. "
        "If false, a late record of an older client can leave a transaction open until the next "
        "start.", scope=Scope.CLUSTER_WIDE),
    integer("transaction.state.log.num.partitions", 50,
        "Partitions of `__transaction_state`, which is created when it is first needed.",
        at_least(1)),
    integer("transaction.state.log.segment.bytes", 100 << 20,
        "Segment size of `__transaction_state`.", at_least(14), unit="bytes"),
    integer("transaction.state.log.load.buffer.size", 5 << 20,
        "How much of `__transaction_state` is read at a time when it is loaded.",
        at_least(1), unit="bytes"),
    short("transaction.state.log.replication.factor", 1,
        "Replicas of `__transaction_state`.",
        at_least(1), kafka_default="3", inert=ONLY_ONE_REPLICA),
    integer("transaction.state.log.min.isr", 1,
        "In-sync replicas that `__transaction_state` needs for a write.",
        at_least(1), kafka_default="2", inert=NO_REPLICAS),
)
# fmt: on
