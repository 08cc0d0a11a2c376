"""The settings of topics that large messages depend on, as the cluster reports them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.large.body_store import cluster_name

# How long an answer is used: the settings of topics change.
KNOWN_SECONDS = 300.0
ASK_SECONDS = 10.0
# The cluster id has no default, so a sender waits for it as long as for a full buffer.
CLUSTER_SECONDS = 60.0
# Kafka's default, if the cluster does not tell.
MESSAGE_BYTES_MAX = 1_048_588

_log = logging.getLogger("headrace.large")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    is_compacted: bool = False
    # -1 for forever.
    retention_ms: int = -1
    # A record is deleted with its segment, whose newest record may be this much younger.
    segment_ms: int = 0


class TopicSettingsCache:
    """Asks a cluster for the settings of topics, and remembers them for a while."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is that of any client; settings for producers or consumers only are ignored."""
        from headrace.client.setting_names import LIBRARY_BOTH

        self._config = {name: value for name, value in config.items() if name in LIBRARY_BOTH}
        self._known: dict[str, tuple[TopicSettings | None, float]] = {}

    def __call__(self, topic: str) -> TopicSettings | None:
        """The settings of a topic, None if it does not exist; KafkaException if that fails."""
        known = self._known.get(topic)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        settings = self._ask(topic)
        self._known[topic] = settings, time.monotonic() + KNOWN_SECONDS
        return settings

    @cached_property
    def cluster(self) -> str:
        """The cluster in the names of bodies; KafkaException if the cluster cannot be asked."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._config)
        asked = admin.describe_cluster(request_timeout=CLUSTER_SECONDS)
        return cluster_name(asked.result(2 * CLUSTER_SECONDS).cluster_id)

    def or_defaults(self, topic: str) -> TopicSettings:
        """The settings of a topic, or Kafka's defaults if they cannot be read."""
        from confluent_kafka import KafkaException

        try:
            return self(topic) or TopicSettings()
        except KafkaException as problem:
            _log.info("cannot read the settings of %s: %s", topic, problem)
            return TopicSettings()

    def _ask(self, topic: str) -> TopicSettings | None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        # A new client each time: it is rarely needed and would keep connections open.
        admin = AdminClient(self._config)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = admin.describe_configs([resource], request_timeout=ASK_SECONDS)
        try:
            rows = {name: row.value for name, row in asked[resource].result(ASK_SECONDS).items()}
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        return TopicSettings(
            int(rows.get("max.message.bytes", MESSAGE_BYTES_MAX)),
            "compact" in rows.get("cleanup.policy", ""),
            int(rows.get("retention.ms", -1)),
            int(rows.get("segment.ms", 0)),
        )
