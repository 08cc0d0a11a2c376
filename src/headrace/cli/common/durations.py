"""Times as people write them on the command line: `15m`, `1h30m`, `2024-05-01T12:00Z`."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.cli.common.errors import CliError
from headrace.timing.durations import UNITS_MS, duration_ms, is_duration

__all__ = ["is_duration", "parse_duration_ms", "parse_time_ms", "show_duration", "show_time"]


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


def parse_time_ms(text: str) -> int | None:
    """Milliseconds since the epoch of a date or an ISO 8601 time, UTC unless it says otherwise."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def show_time(ms: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
