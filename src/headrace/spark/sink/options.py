"""The options of the sink, with the names of Spark's own Kafka connector."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.protocol.compression import Codec
from headrace.spark.connection import BOOTSTRAP, PREFIX, Connection, read_connection
from headrace.spark.errors import OptionError, SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TRANSACTION_TIMEOUT_MS = 300_000
NAMES = (BOOTSTRAP, "topic", "id", "batch")
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
_REASON = "exactly-once needs the sink's own value"
_NUMBERS = ("transaction.timeout.ms", "batch.size", "compression.level")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one query; `topic` is None if the rows name their topics."""

    connection: Connection
    topic: str | None = None
    id: str | None = None
    batch: int = 0


def read_options(given: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a query; SinkError with a hint for a wrong one."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if not name.startswith(PREFIX) and name not in NAMES and name not in IGNORED:
            raise SinkError(f"the sink has no option {name!r}", _suggestion(name))
    for name, spellings in FIXED.items():
        if options.get(f"{PREFIX}{name}", spellings[0]).lower() not in spellings:
            raise SinkError(f"{PREFIX}{name} cannot be set", _REASON)
    if f"{PREFIX}bootstrap.servers" in options:
        options.pop(BOOTSTRAP, None)
    try:
        connection, _ = read_connection(options, "producer", dict.fromkeys(_REFUSED, _REASON))
    except OptionError as problem:
        raise SinkError(problem.message, problem.hint) from None
    settings = {
        "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
        **connection.settings,
        **{name: spellings[0] for name, spellings in FIXED.items()},
    }
    _check_values(settings)
    return SinkOptions(
        Connection(connection.servers, settings),
        options.get("topic") or None,
        options.get("id") or None,
        _batch(options),
    )


def _check_values(settings: Mapping[str, str]) -> None:
    """SinkError for a value that every task would fail with."""
    codec = settings.get("compression.type", "none")
    if codec.upper() not in Codec.__members__:
        known = ", ".join(name.lower() for name in Codec.__members__)
        raise SinkError(f"{PREFIX}compression.type {codec!r} is unknown", f"use one of {known}")
    for name in _NUMBERS:
        given = settings.get(name, "0")
        if not given.removeprefix("-").isdecimal():
            raise SinkError(f"{PREFIX}{name} {given!r} is not a whole number", "such as 1000")


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
    found = difflib.get_close_matches(name, [*NAMES, f"{PREFIX}bootstrap.servers"], n=1, cutoff=0.5)
    return f"did you mean {found[0]}?" if found else f"options: {', '.join(NAMES)}, {PREFIX}*"
