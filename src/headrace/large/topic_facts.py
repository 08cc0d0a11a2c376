"""What a topic allows: the largest record, whether it is compacted, how long records stay."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.large.claims import cluster_name

# Asked again after so long: settings of topics change.
KNOWN_SECONDS = 300.0
ASK_SECONDS = 10.0
# There is no default for this, so a sender waits for it as long as for a full buffer.
CLUSTER_SECONDS = 60.0
# Kafka's default, for a cluster that does not say.
MESSAGE_BYTES_MAX = 1_048_588

_log = logging.getLogger("headrace.large")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The settings of a topic that matter here."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    is_compacted: bool = False
    # -1: for ever.
    retention_ms: int = -1
    # So much younger may the newest record be that a record goes with.
    segment_ms: int = 0


class AskTopics:
    """Asks a cluster for the facts of topics, and remembers them for a while."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is for the client library; settings of producers and consumers are left out."""
        from headrace.client.setting_names import LIBRARY_BOTH

        self._config = {name: value for name, value in config.items() if name in LIBRARY_BOTH}
        self._known: dict[str, tuple[TopicFacts | None, float]] = {}

    def __call__(self, topic: str) -> TopicFacts | None:
        """The facts of a topic; None if there is no such topic. KafkaException."""
        known = self._known.get(topic)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        facts = self._ask(topic)
        self._known[topic] = facts, time.monotonic() + KNOWN_SECONDS
        return facts

    @cached_property
    def cluster(self) -> str:
        """The cluster in the names of bodies. KafkaException if it cannot be asked."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._config)
        asked = admin.describe_cluster(request_timeout=CLUSTER_SECONDS)
        return cluster_name(asked.result(2 * CLUSTER_SECONDS).cluster_id)

    def facts_or_defaults(self, topic: str) -> TopicFacts:
        """For a sender: what is not told is taken to be Kafka's default."""
        from confluent_kafka import KafkaException

        try:
            return self(topic) or TopicFacts()
        except KafkaException as problem:
            _log.info("the settings of %s are not known: %s", topic, problem)
            return TopicFacts()

    def _ask(self, topic: str) -> TopicFacts | None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        # Made anew each time: it is seldom asked, and would hold connections that nobody closes.
        admin = AdminClient(self._config)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = admin.describe_configs([resource], request_timeout=ASK_SECONDS)
        try:
            rows = {name: row.value for name, row in asked[resource].result(ASK_SECONDS).items()}
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        return TopicFacts(
            int(rows.get("max.message.bytes", MESSAGE_BYTES_MAX)),
            "compact" in rows.get("cleanup.policy", ""),
            int(rows.get("retention.ms", -1)),
            int(rows.get("segment.ms", 0)),
        )
