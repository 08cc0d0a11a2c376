"""The kinds of value a setting may hold, and conversion from text and back."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class Kind(IntEnum):
    """Type of a setting; the number is the one DescribeConfigs puts on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


def parse(kind: Kind, text: str) -> Value:
    """Turn text into a value of this kind; raises ValueError with the reason if it is invalid."""
    text = text.strip()
    if kind in _INTEGER_BITS:
        return _parse_integer(text, _INTEGER_BITS[kind])
    if kind is Kind.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("expected true or false")
        return lowered == "true"
    if kind is Kind.DOUBLE:
        return _parse_double(text)
    if kind is Kind.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def _parse_integer(text: str, bits: int) -> int:
    try:
        # int() alone would also take "1_000" and digits of other scripts.
        value = int(text) if text.isascii() and "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        raise ValueError("expected a whole number")
    limit = 1 << (bits - 1)
    if not -limit <= value < limit:
        raise ValueError(f"does not fit in {bits} bits")
    return value


def _parse_double(text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        value = None
    if value is None or value != value or value in (float("inf"), float("-inf")):
        raise ValueError("expected a finite number")
    return value


def text_of(value: Value) -> str | None:
    """Canonical text of a value, as in DescribeConfigs; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).upper().replace("E+", "E")
    return str(value)
