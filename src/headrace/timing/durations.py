"""Durations as people write them: `200ms`, `15m`, `1h30m`."""

from __future__ import annotations

import re

UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART = re.compile(r"(\d+)(ms|[smhdw])")


def is_duration(text: str) -> bool:
    """Whether it is one or more numbers with units."""
    return bool(text) and not _PART.sub("", text)


def duration_ms(duration: str | int) -> int:
    """Milliseconds of a duration, its parts added up; a number is milliseconds already."""
    if isinstance(duration, int):
        return duration
    if not is_duration(duration):
        raise ValueError(
            f"{duration!r} is not a duration; write numbers with ms, s, m, h, d or w, as in 1h30m"
        )
    return sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(duration))
