"""Checks on one parsed value: each raises ValueError if the value is invalid."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from headrace.config.kinds import Value


@dataclass(frozen=True, slots=True)
class Validator:
    """A check, with its description for errors and docs."""

    text: str
    check: Callable[[Value], bool]

    def __call__(self, value: Value) -> None:
        """Raise ValueError with the reason if the value is invalid."""
        if not self.check(value):
            raise ValueError(f"must be {self.text}")


_Number: TypeAlias = int | float


def at_least(low: _Number) -> Validator:
    """A number not below `low`."""
    return Validator(f"at least {low}", lambda value: cast(_Number, value) >= low)


def between(low: _Number, high: _Number) -> Validator:
    """A number from `low` to `high`, both included."""
    return Validator(f"between {low} and {high}", lambda value: low <= cast(_Number, value) <= high)


def unlimited_or_at_least(low: _Number) -> Validator:
    """-1 for no limit, or a number not below `low`."""
    return Validator(
        f"-1 (no limit) or at least {low}",
        lambda value: value == -1 or cast(_Number, value) >= low,
    )


def one_of(*choices: Value) -> Validator:
    """Exactly one of the choices."""
    return Validator("one of " + ", ".join(map(str, choices)), lambda value: value in choices)


def some_of(*choices: str) -> Validator:
    """A list of one or more different choices."""

    def check(value: Value) -> bool:
        parts = cast("tuple[str, ...]", value)
        return bool(parts) and set(parts) <= set(choices) and len(set(parts)) == len(parts)

    return Validator("a list of one or more of " + ", ".join(choices), check)


def gzip_level() -> Validator:
    """-1 for zlib's own default, or 1 to 9."""
    return Validator(
        "-1 or between 1 and 9", lambda value: value == -1 or 1 <= cast(int, value) <= 9
    )


def not_empty() -> Validator:
    """A string or list with something in it."""
    return Validator("not empty", bool)


def throttled_replicas() -> Validator:
    """Empty, `*`, or a list of `partition:broker` pairs."""

    def check(value: Value) -> bool:
        parts = cast("tuple[str, ...]", value)
        return parts == ("*",) or all(re.fullmatch(r"\d+:\d+", part, re.ASCII) for part in parts)

    return Validator("empty, * or a list of partition:broker pairs", check)


def address_counts() -> Validator:
    """A list of `host:count` pairs; the count is after the last colon, for IPv6 addresses."""
    return Validator(
        "a list of host:count pairs",
        lambda value: all(
            re.fullmatch(r".+:\d+", part, re.ASCII) for part in cast("tuple[str, ...]", value)
        ),
    )
