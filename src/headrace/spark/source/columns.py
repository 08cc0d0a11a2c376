"""The columns of a topic: the names and types of Spark's own Kafka connector."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.spark.errors import OptionError

HEADERS = "headers"
# Name, Spark type, Arrow type.
_ROWS: tuple[tuple[str, str, Any], ...] = (
    ("key", "binary", pa.binary()),
    ("value", "binary", pa.binary()),
    ("topic", "string", pa.string()),
    ("partition", "int", pa.int32()),
    ("offset", "bigint", pa.int64()),
    ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", "int", pa.int32()),
    (
        HEADERS,
        "array<struct<key:string,value:binary>>",
        pa.list_(
            pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    ),
)
SPARK_TYPES = {name: spark for name, spark, _ in _ROWS}
ARROW_TYPES = {name: arrow for name, _, arrow in _ROWS}
ALWAYS = tuple(name for name in SPARK_TYPES if name != HEADERS)


def choose(wanted: str | None, *, include_headers: bool) -> tuple[str, ...]:
    """The columns to build: those of the official connector unless `columns` names others."""
    if wanted is None:
        return (*ALWAYS, HEADERS) if include_headers else ALWAYS
    by_name = {name.lower(): name for name in SPARK_TYPES}
    chosen: list[str] = []
    for given in wanted.split(","):
        name = by_name.get(given.strip().lower())
        if name is None:
            near = difflib.get_close_matches(given.strip(), SPARK_TYPES, n=1)
            raise OptionError(
                f"columns: there is no column {given.strip()!r}",
                f"did you mean {near[0]}?" if near else f"there are {', '.join(SPARK_TYPES)}",
            )
        if name not in chosen:
            chosen.append(name)
    if include_headers and HEADERS not in chosen:
        raise OptionError(
            "includeHeaders is true, but columns does not name headers",
            "add headers to columns, or leave out includeHeaders",
        )
    return tuple(chosen)


def schema(columns: Sequence[str]) -> str:
    """The columns as a Spark schema."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> Any:
    """The columns as an Arrow schema."""
    return pa.schema([(name, ARROW_TYPES[name]) for name in columns])
