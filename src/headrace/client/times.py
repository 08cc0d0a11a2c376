"""Points in time as people write and read them: ISO 8601, in UTC by default."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time_ms(text: str) -> int | None:
    """Milliseconds since the epoch of a date or an ISO 8601 time; None if it is neither."""
    try:
        return to_ms(datetime.fromisoformat(text))
    except ValueError:
        return None


def to_ms(time: datetime) -> int:
    """Milliseconds since the epoch; a time without a zone is in UTC."""
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def show_time(ms: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
