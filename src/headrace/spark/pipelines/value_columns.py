"""Columns of values decoded by Python, each row by itself: a bad one has a cause and no fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

CAUSE_CHARS_MAX = 300


class ColumnDecoder:
    """Turns a column of bytes into a column of `struct<fields, cause>`."""

    def __init__(self, decode: Callable[[bytes], dict[str, Any]], fields: StructType) -> None:
        self._decode = decode
        self._fields = fields

    def read(self, values: pa.Array) -> pa.Array:
        """Decode every value; None stays None."""
        kind = to_arrow_type(self._fields, timezone="UTC")
        rows: list[dict[str, Any] | None] = []
        causes: list[str | None] = []
        for value in values.to_pylist():
            row, cause = self._one(value)
            rows.append(row)
            causes.append(cause)
        try:
            fields = pa.array(rows, type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # Somewhere a value is of another type than the schema's: find out where.
            for index, row in enumerate(rows):
                try:
                    pa.array([row], type=kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
                    rows[index], causes[index] = None, _words(problem)
            fields = pa.array(rows, type=kind)
        return pa.StructArray.from_arrays(
            [fields, pa.array(causes, type=pa.string())], names=["fields", "cause"]
        )

    def _one(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        if value is None:
            return None, None
        try:
            return self._decode(value), None
        except Exception as problem:
            return None, _words(problem)


def _words(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:CAUSE_CHARS_MAX]
