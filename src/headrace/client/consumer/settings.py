"""What a consumer is told by its settings: for the library below, and for itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.client.consumer.group_start import Limits
from headrace.client.consumer.start import Start, parse_reset, parse_start
from headrace.client.settings import Settings, boolean, integer, read

# Kafka's defaults.
AUTO_COMMIT_INTERVAL_MS = 5_000
API_TIMEOUT_MS = 60_000
POLL_RECORDS_MAX = 500
# A group that is new to a topic with a longer history has to say where to start.
HISTORY_MS = 86_400_000
HISTORY_RECORDS = 1_000_000
# What the library is told when there is no group; nothing is joined or committed by that name.
NO_GROUP = "headrace-standalone"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
DEFAULTS = {"exclude.internal.topics": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The settings of one consumer, read and checked."""

    # For the library below.
    config: dict[str, Any]
    # As given, for deserialisers and interceptors.
    own: Settings
    group: str | None
    start: Start | None
    reset: Start | None
    limits: Limits
    auto_commits: bool
    commit_interval_s: float
    api_timeout_s: float
    poll_records_max: int
    is_cooperative: bool

    @property
    def hides_internal(self) -> bool:
        """Whether the library ignores Kafka's internal topics."""
        return "topic.blacklist" in self.config


def read_settings(
    given: Settings, group: str | None, start: str | datetime | timedelta | None
) -> ConsumerSettings:
    """Read settings by Kafka's names; UnknownSetting for a wrong one."""
    config, own = read({**DEFAULTS, **given}, "consumer")
    group = group or config.get("group.id")
    reset = parse_reset(str(own.get("auto.offset.reset", "latest")))
    wants_commits = boolean("enable.auto.commit", own.get("enable.auto.commit", True))
    interval_ms = integer(own, "auto.commit.interval.ms", AUTO_COMMIT_INTERVAL_MS)
    return ConsumerSettings(
        config={
            **config,
            "group.id": group or NO_GROUP,
            # Positions are committed when the caller polls again, not when it was handed them.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": _library_reset(reset),
        },
        own=own,
        group=group,
        start=None if start is None else parse_start(start),
        reset=reset,
        limits=Limits(
            age_ms=integer(own, "headrace.history.ms", HISTORY_MS, -1),
            records=integer(own, "headrace.history.records", HISTORY_RECORDS, -1),
        ),
        # Without a group there is nobody to commit for.
        auto_commits=wants_commits and group is not None,
        commit_interval_s=interval_ms / 1000,
        api_timeout_s=integer(own, "default.api.timeout.ms", API_TIMEOUT_MS, 1) / 1000,
        poll_records_max=integer(own, "max.poll.records", POLL_RECORDS_MAX, 1),
        is_cooperative="cooperative-sticky" in config.get("partition.assignment.strategy", "")
        or str(config.get("group.protocol", "classic")).lower() == "consumer",
    )


def _library_reset(reset: Start | None) -> str:
    # What the library cannot do comes back as an error and is done by the consumer.
    return reset.kind if reset is not None and reset.kind in ("earliest", "latest") else "error"
