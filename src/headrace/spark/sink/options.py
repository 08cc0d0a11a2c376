"""Options of the sink, by the official connector's names; wrong ones fail at once with a hint."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import UnknownSetting
from headrace.client.settings import translate
from headrace.client.wire.cluster import parse_servers
from headrace.protocol.compression import Codec
from headrace.spark.connection import what_is_insecure
from headrace.spark.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BOOTSTRAP = "kafka.bootstrap.servers"
KAFKA = "kafka."
TRANSACTION_TIMEOUT_MS = 300_000
NAMES = ("bootstrap", "topic", "id", "batch")
# Those that Spark itself takes and hands on, and those of the official connector without effect.
PASSED_OVER = frozenset(("checkpointlocation", "path", "queryname", "includeheaders"))
# What the sink does anyhow, as it may be said: otherwise rows could be lost or doubled.
FIXED = {
    "enable.idempotence": ("true",),
    "acks": ("all", "-1"),
}
_REFUSED = (
    "transactional.id", "key.serializer", "value.serializer", "interceptor.classes",
    "partitioner.class", "partitioner.ignore.keys",
)  # fmt: skip
_NUMBERS = ("transaction.timeout.ms", "batch.size", "compression.level")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go: a topic unless the rows name theirs, and the producer's settings."""

    settings: Mapping[str, str]
    topic: str | None = None
    id: str | None = None
    batch: int = 0


def read_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a sink; SinkError for one that is unknown, missing or not to be changed."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = {
        name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)
    }
    for name in options:
        if not name.startswith(KAFKA) and name not in NAMES and name not in PASSED_OVER:
            raise SinkError(f"the sink has no option {name!r}", _near(name))
    for name, value in kafka.items():
        if name in _REFUSED or (name in FIXED and value.lower() not in FIXED[name]):
            raise SinkError(
                f"{KAFKA}{name} cannot be changed", "the sink needs its own to be exact"
            )
    if "bootstrap" in options:
        kafka.setdefault("bootstrap.servers", options["bootstrap"])
    if not kafka.get("bootstrap.servers"):
        raise SinkError("where is the cluster?", f'.option("{BOOTSTRAP}", "HOST:PORT")')
    try:
        settings = translate(kafka, "producer")
    except UnknownSetting as problem:
        raise SinkError(str(problem), f"settings of a producer go with {KAFKA} before") from None
    settings = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, **settings}
    _check_values(settings)
    return SinkOptions(
        {
            **{name: str(value) for name, value in settings.items()},
            **{name: words[0] for name, words in FIXED.items()},
        },
        options.get("topic") or None,
        options.get("id") or None,
        _batch(options),
    )


def _check_values(settings: Mapping[str, object]) -> None:
    """SinkError for what a task would fail at, again and again."""
    insecurity = what_is_insecure(settings)
    if insecurity is not None:
        raise SinkError(*insecurity)
    try:
        parse_servers(str(settings["bootstrap.servers"]))
    except ValueError as problem:
        raise SinkError(str(problem), f'.option("{BOOTSTRAP}", "HOST:PORT")') from None
    codec = str(settings.get("compression.type", "none"))
    if codec.upper() not in Codec.__members__:
        known = ", ".join(name.lower() for name in Codec.__members__)
        raise SinkError(f"{KAFKA}compression.type {codec!r} is not known", f"one of {known}")
    for name in _NUMBERS:
        given = str(settings.get(name, "0"))
        if not given.removeprefix("-").isdecimal():
            raise SinkError(f"{KAFKA}{name} {given!r} is not a number", "give a whole number")


def _batch(options: Mapping[str, str]) -> int:
    given = options.get("batch", "0")
    if not given.isdecimal():
        raise SinkError(f"batch {given!r} is not a number", "the one that foreachBatch gives")
    if "batch" in options and not options.get("id"):
        raise SinkError("a batch has a number among those of one id", '.option("id", NAME)')
    return int(given)


def check_columns(schema: StructType, topic: str | None) -> None:
    """SinkError unless rows of this schema can be sent."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise SinkError(
            f"the rows have no column 'value', only {', '.join(sorted(kinds))}",
            "df.selectExpr('to_json(struct(*)) AS value')",
        )
    for name, fit in _COLUMNS.items():
        if name in kinds and kinds[name] not in fit:
            raise SinkError(
                f"column {name!r} is {kinds[name]}", f"cast it to {' or '.join(fit)} before"
            )
    if topic is None and "topic" not in kinds:
        raise SinkError("which topic?", '.option("topic", NAME), or a column named topic')


_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def _near(name: str) -> str:
    found = difflib.get_close_matches(name, [*NAMES, BOOTSTRAP], n=1, cutoff=0.5)
    return f"did you mean {found[0]}?" if found else f"it has {', '.join((*NAMES, KAFKA + '*'))}"
