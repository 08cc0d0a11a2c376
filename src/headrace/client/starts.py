"""Where to begin in a partition: the oldest record, the end, or a point in time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient

from headrace.client.errors import UnknownSetting
from headrace.client.setting_names import LIBRARY_BOTH
from headrace.protocol.partitions import TopicPartition
from headrace.timing.durations import duration_ms, is_duration

PAUSE_SECONDS = 0.1
# What ListOffsets takes in place of a time.
_LATEST, _EARLIEST = -1, -2

T = TypeVar("T")

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    # A member hears of a partition from its group before it has asked who leads it.
    KafkaError._UNKNOWN_PARTITION,
)

_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Start:
    """A beginning: the oldest record, the end, or the first record since a time."""

    kind: Literal["earliest", "latest", "ago", "at"]
    ms: int = 0

    def since_ms(self, now_ms: int) -> int:
        """The time it stands for; only of those that stand for one."""
        return now_ms - self.ms if self.kind == "ago" else self.ms


EARLIEST = Start("earliest")
LATEST = Start("latest")


def parse_start(given: str | datetime | timedelta) -> Start:
    """`earliest`, `latest`, a duration before now (`2h`, `PT2H`) or a time (ISO 8601)."""
    if isinstance(given, timedelta):
        return Start("ago", round(given.total_seconds() * 1000))
    if isinstance(given, str):
        if given in ("earliest", "latest"):
            return EARLIEST if given == "earliest" else LATEST
        if is_duration(given):
            return Start("ago", duration_ms(given))
        if given[:1] in ("P", "p"):
            return Start("ago", iso_duration_ms(given))
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise UnknownSetting(
                f"start {given!r} is neither earliest, latest, a duration before now such as 2h, "
                "nor a time such as 2026-01-31T08:00Z"
            ) from None
    if given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    return Start("at", round(given.timestamp() * 1000))


def parse_reset(given: str) -> Start | None:
    """A value of `auto.offset.reset`; None for none."""
    words = {
        "earliest": EARLIEST, "smallest": EARLIEST, "beginning": EARLIEST,
        "latest": LATEST, "largest": LATEST, "end": LATEST,
        "none": None, "error": None,
    }  # fmt: skip
    if given in words:
        return words[given]
    kind, colon, duration = given.partition(":")
    if kind != "by_duration" or not colon:
        raise UnknownSetting(
            f"auto.offset.reset {given!r} is none of earliest, latest, none, by_duration:PT2H"
        )
    return Start(
        "ago", duration_ms(duration) if is_duration(duration) else iso_duration_ms(duration)
    )


def iso_duration_ms(text: str) -> int:
    """Milliseconds of a duration as ISO 8601 and Java write it: P1DT2H30M."""
    found = _ISO_DURATION.fullmatch(text)
    if not found or not any(found.groups()):
        raise UnknownSetting(f"{text!r} is not a duration: P1DT2H30M, PT15M, 2h")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


class Offsets:
    """Asks for the offsets of many partitions at once, and again while a refusal is passing."""

    def __init__(self, client: Any, timeout_s: float, config: Mapping[str, Any]) -> None:
        self._client = client
        self._config = config
        self.timeout_s = timeout_s

    def oldest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._list(places, _EARLIEST)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each that may be read."""
        return self._list(places, _LATEST)

    def since(self, places: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each with a record since the time; the end if there is none."""
        asked = list(places)
        ends = self.ends(asked)
        found = self._list(asked, max(0, time_ms))
        return {place: ends[place] if found[place] < 0 else found[place] for place in asked}

    def at(
        self, places: Iterable[TopicPartition], start: Start, now_ms: int
    ) -> dict[TopicPartition, int]:
        """Where a beginning is in each."""
        if start.kind == "earliest":
            return self.oldest(places)
        if start.kind == "latest":
            return self.ends(places)
        return self.since(places, start.since_ms(now_ms))

    def committed(self, places: Iterable[TopicPartition]) -> list[Any]:
        """TopicPartitions with what the group has committed: offset and metadata."""
        asked = [LibraryPartition(*place) for place in places]
        if not asked:
            return []
        return self.insist(lambda: self._client.committed(asked, timeout=self.timeout_s))

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it is not there. Not for callbacks."""
        return self._count(self._client, topic)

    def partitions_apart(self, topic: str) -> int:
        """The same on a connection of its own, for callbacks of the consumer.

        The consumer itself would forget on whose behalf it polls, and the next callback of the
        same poll would abort the process.
        """
        config = {name: value for name, value in self._config.items() if name in LIBRARY_BOTH}
        return self._count(AdminClient(config), topic)

    def _count(self, client: Any, topic: str) -> int:
        found = self.insist(lambda: client.list_topics(topic, timeout=self.timeout_s))
        return len(found.topics[topic].partitions)

    def insist(self, ask: Callable[[], T]) -> T:
        """Ask again while the refusal is passing and there is time."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return ask()
            except KafkaException as refusal:
                error = refusal.args[0]
                passing = error.code() in _PASSING or error.retriable()
                if not passing or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _list(self, places: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        asked = [LibraryPartition(*place, time_ms) for place in places]
        if not asked:
            return {}

        def ask() -> list[Any]:
            found: list[Any] = self._client.offsets_for_times(asked, timeout=self.timeout_s)
            for partition in found:
                if partition.error is not None:
                    raise KafkaException(partition.error)
            return found

        return {(found.topic, found.partition): found.offset for found in self.insist(ask)}
