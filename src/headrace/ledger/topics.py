"""The three topics of a ledger service: commands, state, dead letters."""

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
# This many instances can share the deliveries.
STATE_PARTITIONS = 4
# Far more than an input topic accepts by default, since a record grows a little on its way; still
# within a segment of the state topic and within the request limits of brokers and clients.
RECORD_BYTES_MAX = 52_428_800
# A dead letter also carries its error.
DEAD_LETTER_BYTES_MAX = RECORD_BYTES_MAX + 1_048_576

_NOT_ALLOWED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_log = logging.getLogger("headrace.ledger")


@dataclass(frozen=True, slots=True)
class ServiceTopics:
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
    def dead_letters(self) -> str:
        """The topic for invalid commands and for messages that their target refuses."""
        return f"{self.input}.dlq"

    def intake_id(self, partition: int) -> str:
        """The transactional id of the intake of an input partition."""
        return f"{self.input}-{partition}"

    def owner_id(self, partition: int) -> str:
        """The transactional id of the owner of a state partition."""
        return f"{self.state}-{partition}"


def needed_topics(
    service: str, input_partitions: int = INPUT_PARTITIONS, state_partitions: int = STATE_PARTITIONS
) -> list[NeededTopic]:
    """All topics of a service."""
    topics = ServiceTopics(service)
    state = {
        "segment.bytes": "67108864",
        "min.cleanable.dirty.ratio": "0.3",
        # Longer than reading a state partition takes; every delivery leaves a tombstone this long.
        "delete.retention.ms": "600000",
    }
    # Enforced even on topics that somebody else made: a record they refuse would be stuck.
    state_must = {"cleanup.policy": "compact", "max.message.bytes": str(RECORD_BYTES_MAX)}
    dead_letters_must = {"max.message.bytes": str(DEAD_LETTER_BYTES_MAX)}
    return [
        commands_topic(topics.input, input_partitions),
        NeededTopic(topics.state, state_partitions, state, state_must),
        NeededTopic(topics.dead_letters, 1, must=dead_letters_must),
    ]


def ensure_topics(
    admin: AdminClient,
    service: str,
    input_partitions: int = INPUT_PARTITIONS,
    state_partitions: int = STATE_PARTITIONS,
) -> None:
    """Create the missing topics of a service and correct the settings of the others."""
    try:
        make_topics(admin, needed_topics(service, input_partitions, state_partitions))
    except KafkaException as problem:
        if problem.args[0].code() not in _NOT_ALLOWED:
            raise
        _log.warning(
            "not allowed to create or change the topics of %s, using them as they are: %s",
            service, problem.args[0].str(),
        )  # fmt: skip
