"""The settings of a consumer: those for librdkafka, and its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.client.consumer.group_start import HistoryLimits
from headrace.client.consumer.start import Start, parse_reset, parse_start
from headrace.client.settings import ClientSettings, boolean, integer, read

# Kafka's defaults.
AUTO_COMMIT_INTERVAL_MS = 5_000
API_TIMEOUT_MS = 60_000
POLL_RECORDS_MAX = 500
# A group that is new to a topic with a longer history must be given a start.
HISTORY_MS = 86_400_000
HISTORY_RECORDS = 1_000_000
# The library needs a group id; without a group nothing is joined or committed.
NO_GROUP = "headrace-standalone"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
DEFAULTS = {"exclude.internal.topics": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The settings of one consumer, read and checked."""

    # For librdkafka.
    config: dict[str, Any]
    # As given, for deserialisers and interceptors.
    own: ClientSettings
    group: str | None
    start: Start | None
    reset: Start | None
    limits: HistoryLimits
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
    given: ClientSettings, group: str | None, start: str | datetime | timedelta | None
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
            # Offsets are committed when the caller polls again, not when it gets the records.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": _library_reset(reset),
        },
        own=own,
        group=group,
        start=None if start is None else parse_start(start),
        reset=reset,
        limits=HistoryLimits(
            age_ms=integer(own, "headrace.history.ms", HISTORY_MS, -1),
            records=integer(own, "headrace.history.records", HISTORY_RECORDS, -1),
        ),
        # Without a group there is nothing to commit.
        auto_commits=wants_commits and group is not None,
        commit_interval_s=interval_ms / 1000,
        api_timeout_s=integer(own, "default.api.timeout.ms", API_TIMEOUT_MS, 1) / 1000,
        poll_records_max=integer(own, "max.poll.records", POLL_RECORDS_MAX, 1),
        is_cooperative="cooperative-sticky" in config.get("partition.assignment.strategy", "")
        or str(config.get("group.protocol", "classic")).lower() == "consumer",
    )


def _library_reset(reset: Start | None) -> str:
    # What the library cannot do comes back as an error, and the consumer does it.
    return reset.kind if reset is not None and reset.kind in ("earliest", "latest") else "error"
