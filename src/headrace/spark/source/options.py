"""The options of the source, with the names of Spark's own Kafka connector."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.wire.batch_reader import FETCH_BYTES_MAX
from headrace.client.wire.leaders import Isolation
from headrace.protocol.partitions import TopicPartition
from headrace.spark.connection import BOOTSTRAP, PREFIX, Connection, read_connection
from headrace.spark.errors import DataLoss, OptionError
from headrace.spark.source.columns import choose
from headrace.spark.source.positions import (
    LATEST,
    LATEST_OFFSET,
    Position,
    read_assignment,
    read_position,
)

_log = logging.getLogger("headrace.spark")

RECORDS_PER_TASK = 1_000_000
"""A larger range of one partition is read by several tasks, unless an option changes it."""
TIMEOUT_SECONDS = 120.0
TRIGGER_DELAY_SECONDS = 15 * 60.0

SUBSCRIBE, PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
_OWN = (
    SUBSCRIBE, PATTERN, ASSIGN, BOOTSTRAP, "columns", "includeHeaders", "group",
    "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip
# Options of the official connector that have no effect here: no group is joined to read.
_WITHOUT_EFFECT = (
    "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "useDeprecatedOffsetFetching",
)  # fmt: skip
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions are read; exactly one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query; can be sent to tasks."""

    connection: Connection
    topics: Topics
    columns: tuple[str, ...]
    starting: Position | None
    ending: Position | None
    group: str | None
    isolation: Isolation
    fails_on_data_loss: bool
    tasks_min: int | None
    records_per_task_max: int
    records_per_trigger_max: int | None
    records_per_trigger_min: int | None
    trigger_delay_s: float
    fetch_bytes_max: int
    timeout_s: float

    def start(self, default: str) -> Position:
        """Where to begin; `default` is a word for a query without such an option."""
        return self.starting or Position(default)

    def report_loss(self, loss: str) -> None:
        """Raise DataLoss, or log a warning where failOnDataLoss is false."""
        if self.fails_on_data_loss:
            raise DataLoss(loss)
        _log.warning("%s; continuing, as failOnDataLoss is false", loss)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check and read the options of a query; OptionError with a hint for a wrong one."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(options)
    connection, kafka = read_connection(options)
    include_headers = _boolean(options, "includeHeaders", False)
    fetch_name = "max.partition.fetch.bytes"
    return SourceOptions(
        connection=connection,
        topics=_topics(options),
        columns=choose(options.get("columns"), include_headers=include_headers),
        starting=read_position(options, "starting"),
        ending=read_position(options, "ending"),
        group=_text(options, "group"),
        isolation=_isolation(kafka.get("isolation.level", "read_committed")),
        fails_on_data_loss=_boolean(options, "failOnDataLoss", True),
        tasks_min=_number(options, "minPartitions"),
        records_per_task_max=_number(options, "maxRecordsPerPartition") or RECORDS_PER_TASK,
        records_per_trigger_max=_number(options, "maxOffsetsPerTrigger"),
        records_per_trigger_min=_number(options, "minOffsetsPerTrigger"),
        trigger_delay_s=_seconds(options, "maxTriggerDelay", TRIGGER_DELAY_SECONDS),
        fetch_bytes_max=_number(kafka, fetch_name, PREFIX) or FETCH_BYTES_MAX,
        timeout_s=(_number(options, "kafkaConsumer.pollTimeoutMs") or TIMEOUT_SECONDS * 1e3) / 1e3,
    )


def for_batch(options: SourceOptions) -> SourceOptions:
    """Refuse what a batch query cannot do."""
    if options.starting == Position(LATEST):
        raise OptionError("startingOffsets: a batch that begins at latest reads nothing")
    if options.ending is not None and options.ending.has_earliest:
        raise OptionError("endingOffsets: a batch that ends at earliest reads nothing")
    if options.starting is not None and LATEST_OFFSET in options.starting.offsets.values():
        raise OptionError("startingOffsets: -1 (latest) is not for batches", "-2 is earliest")
    return options


def for_stream(options: SourceOptions) -> SourceOptions:
    """Refuse what a streaming query cannot do."""
    if options.ending is not None:
        raise OptionError(
            "endingOffsets is for batches: a stream has no end",
            "trigger(availableNow=True) ends a query at what is there when it starts",
        )
    least, most = options.records_per_trigger_min, options.records_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger is above maxOffsetsPerTrigger")
    return options


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*_OWN, *_WITHOUT_EFFECT)}
    for name in options:
        if name in known or name.startswith(PREFIX):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        raise OptionError(
            f"there is no option {name!r}",
            f"did you mean {known[near[0]]}?" if near else "client settings are kafka.NAME",
        )


def _topics(options: Mapping[str, str]) -> Topics:
    given = [name for name in (SUBSCRIBE, PATTERN, ASSIGN) if options.get(name.lower())]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "no topics are given"
        raise OptionError(f"{what}; give one of {SUBSCRIBE}, {PATTERN} and {ASSIGN}")
    value = options[given[0].lower()]
    if given[0] == SUBSCRIBE:
        names = tuple(dict.fromkeys(filter(None, map(str.strip, value.split(",")))))
        if not names:
            raise OptionError(f"{SUBSCRIBE} names no topic")
        return Topics(names=names)
    if given[0] == PATTERN:
        try:
            re.compile(value)
        except re.error as problem:
            raise OptionError(f"{PATTERN} {value!r} is not a valid pattern: {problem}") from None
        return Topics(pattern=value)
    return Topics(assigned=read_assignment(ASSIGN, value))


def _isolation(value: str) -> Isolation:
    known = {"read_committed": Isolation.COMMITTED, "read_uncommitted": Isolation.UNCOMMITTED}
    if value.lower() not in known:
        raise OptionError(f"kafka.isolation.level {value!r} is not one of {', '.join(known)}")
    return known[value.lower()]


def _text(options: Mapping[str, str], name: str) -> str | None:
    value = options.get(name)
    if value is not None and not value.strip():
        raise OptionError(f"{name} is empty")
    return value


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name.lower(), str(default)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} {value!r} is neither true nor false")
    return value == "true"


def _number(options: Mapping[str, str], name: str, prefix: str = "") -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(f"{prefix}{name} {value!r} is not a whole number above zero")
    return number


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    value = options.get(name.lower())
    if value is None:
        return default
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None:
        raise OptionError(f"{name} {value!r} is not a duration", "such as 500ms, 30s, 15m, 1h")
    return int(match[1]) * _UNIT_SECONDS[match[2] or "ms"]
