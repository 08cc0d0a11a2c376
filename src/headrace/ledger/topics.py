"""The three topics of a service: commands, state, dead letters."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.client.admin.topics import (
    NeededTopic,
    commands_topic,
    make_topics,
)

INPUT_PARTITIONS = 1
# As many instances can share the deliveries.
STATE_PARTITIONS = 4
# Far more than an input topic takes by default, since a record grows a little on its way; still
# within a segment of the state and within what brokers and clients take in one request.
RECORD_BYTES_MAX = 52_428_800
# A dead letter also says why.
DEAD_BYTES_MAX = RECORD_BYTES_MAX + 1_048_576

_NOT_ALLOWED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_log = logging.getLogger("headrace.ledger")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one service's topics and groups, and the transactional ids of its owners."""

    service: str

    @property
    def input(self) -> str:
        """The ordinary topic that any client writes commands to; also the group that reads it."""
        return f"headrace.{self.service}"

    @property
    def state(self) -> str:
        """The compacted topic; also the group whose members own its partitions."""
        return f"{self.input}.state"

    @property
    def dead(self) -> str:
        """The topic for what is no command, or has no target."""
        return f"{self.input}.dlq"

    def intake_id(self, partition: int) -> str:
        """The transactional id of whoever takes in a partition of the input."""
        return f"{self.input}-{partition}"

    def keeper_id(self, partition: int) -> str:
        """The transactional id of whoever owns a partition of the state."""
        return f"{self.state}-{partition}"


def needed_topics(
    service: str, input_partitions: int = INPUT_PARTITIONS, state_partitions: int = STATE_PARTITIONS
) -> list[NeededTopic]:
    """All topics of a service."""
    names = Names(service)
    state = {
        "segment.bytes": "67108864",
        "min.cleanable.dirty.ratio": "0.3",
        # Longer than a rebuild takes; every delivery leaves a deletion behind for so long.
        "delete.retention.ms": "600000",
    }
    # Whoever made them: what a topic refuses could go nowhere.
    state_must = {"cleanup.policy": "compact", "max.message.bytes": str(RECORD_BYTES_MAX)}
    dead_must = {"max.message.bytes": str(DEAD_BYTES_MAX)}
    return [
        commands_topic(names.input, input_partitions),
        NeededTopic(names.state, state_partitions, state, state_must),
        NeededTopic(names.dead, 1, must=dead_must),
    ]


def ensure_topics(
    admin: AdminClient,
    service: str,
    input_partitions: int = INPUT_PARTITIONS,
    state_partitions: int = STATE_PARTITIONS,
) -> None:
    """Make the topics of a service where they are missing."""
    try:
        make_topics(admin, needed_topics(service, input_partitions, state_partitions))
    except KafkaException as problem:
        if problem.args[0].code() not in _NOT_ALLOWED:
            raise
        _log.warning("the topics of %s are taken as they are: %s", service, problem.args[0].str())
