"""The options of the sink, with the names of Spark's own Kafka connector."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import UnknownSetting
from headrace.client.settings import translate
from headrace.client.wire.cluster import parse_servers
from headrace.protocol.compression import Codec
from headrace.spark.connection import security_problem
from headrace.spark.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BOOTSTRAP = "kafka.bootstrap.servers"
KAFKA = "kafka."
TRANSACTION_TIMEOUT_MS = 300_000
NAMES = ("bootstrap", "topic", "id", "batch")
# Options that Spark passes on, and those of the official connector without effect.
IGNORED = frozenset(("checkpointlocation", "path", "queryname", "includeheaders"))
# What the sink always does, and how it may be spelt: otherwise rows could be lost or doubled.
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
    """The options of one query; `topic` is None if the rows name their topics."""

    settings: Mapping[str, str]
    topic: str | None = None
    id: str | None = None
    batch: int = 0


def read_options(given: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a query; SinkError with a hint for a wrong one."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = {
        name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)
    }
    for name in options:
        if not name.startswith(KAFKA) and name not in NAMES and name not in IGNORED:
            raise SinkError(f"the sink has no option {name!r}", _suggestion(name))
    for name, value in kafka.items():
        if name in _REFUSED or (name in FIXED and value.lower() not in FIXED[name]):
            raise SinkError(
                f"{KAFKA}{name} cannot be changed", "exactly-once needs the sink's own value"
            )
    if "bootstrap" in options:
        kafka.setdefault("bootstrap.servers", options["bootstrap"])
    if not kafka.get("bootstrap.servers"):
        raise SinkError(f"{BOOTSTRAP} is missing", f'.option("{BOOTSTRAP}", "HOST:PORT")')
    try:
        settings = translate(kafka, "producer")
    except UnknownSetting as problem:
        raise SinkError(str(problem), f"producer settings are given as {KAFKA}NAME") from None
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
    """SinkError for a value that every task would fail with."""
    problem = security_problem(settings)
    if problem is not None:
        raise SinkError(*problem)
    try:
        parse_servers(str(settings["bootstrap.servers"]))
    except ValueError as error:
        raise SinkError(str(error), f'.option("{BOOTSTRAP}", "HOST:PORT")') from None
    codec = str(settings.get("compression.type", "none"))
    if codec.upper() not in Codec.__members__:
        known = ", ".join(name.lower() for name in Codec.__members__)
        raise SinkError(f"{KAFKA}compression.type {codec!r} is unknown", f"use one of {known}")
    for name in _NUMBERS:
        given = str(settings.get(name, "0"))
        if not given.removeprefix("-").isdecimal():
            raise SinkError(f"{KAFKA}{name} {given!r} is not a whole number", "such as 1000")


def _batch(options: Mapping[str, str]) -> int:
    given = options.get("batch", "0")
    if not given.isdecimal():
        raise SinkError(f"batch {given!r} is not a number", "give the one from foreachBatch")
    if "batch" in options and not options.get("id"):
        raise SinkError("option batch needs option id", '.option("id", NAME)')
    return int(given)


def check_columns(schema: StructType, topic: str | None) -> None:
    """SinkError if rows of this schema cannot be sent."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise SinkError(
            f"the rows have no column 'value', only {', '.join(sorted(kinds))}",
            "df.selectExpr('to_json(struct(*)) AS value')",
        )
    for name, fit in _COLUMNS.items():
        if name in kinds and kinds[name] not in fit:
            raise SinkError(f"column {name!r} is {kinds[name]}", f"cast it to {' or '.join(fit)}")
    if topic is None and "topic" not in kinds:
        raise SinkError("no topic is given", '.option("topic", NAME), or a column named topic')


_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def _suggestion(name: str) -> str:
    found = difflib.get_close_matches(name, [*NAMES, BOOTSTRAP], n=1, cutoff=0.5)
    return f"did you mean {found[0]}?" if found else f"options: {', '.join(NAMES)}, {KAFKA}*"
