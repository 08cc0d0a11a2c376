"""Durations as people write them on the command line: `15m`, `1h30m`."""

from __future__ import annotations

from headrace.cli.common.errors import CliError
from headrace.timing.durations import UNITS_MS, duration_ms, is_duration


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds of a duration; its parts are added up."""
    if not is_duration(text):
        raise CliError(
            f"{option} {text!r} is not a duration",
            "numbers with ms, s, m, h, d or w: 90s, 15m, 1h30m",
            2,
        )
    return duration_ms(text)


def show_duration(ms: float) -> str:
    """A duration in the two largest units that it fills: `3d4h`, `90ms`."""
    left = max(0, round(ms))
    parts = []
    for unit, size in reversed(UNITS_MS.items()):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0ms"
