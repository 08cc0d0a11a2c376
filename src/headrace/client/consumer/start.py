"""Where to start in a partition: the oldest record, the end, or a point in time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from headrace.client.errors import UnknownSetting
from headrace.client.times import parse_time_ms, to_ms
from headrace.timing.durations import duration_ms, is_duration

_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Start:
    """A start: the oldest record, the end, or the first record since a time."""

    kind: Literal["earliest", "latest", "ago", "at"]
    ms: int = 0

    def since_ms(self, now_ms: int) -> int:
        """The time that it stands for; only for `ago` and `at`."""
        return now_ms - self.ms if self.kind == "ago" else self.ms


EARLIEST = Start("earliest")
LATEST = Start("latest")


def parse_start(given: str | datetime | timedelta) -> Start:
    """`earliest`, `latest`, a duration before now (`2h`, `PT2H`) or a time (ISO 8601)."""
    if isinstance(given, timedelta):
        return Start("ago", round(given.total_seconds() * 1000))
    if isinstance(given, str):
        if given in ("earliest", "latest"):
            return EARLIEST if given == "earliest" else LATEST
        if is_duration(given):
            return Start("ago", duration_ms(given))
        if given[:1] in ("P", "p"):
            return Start("ago", iso_duration_ms(given))
        at_ms = parse_time_ms(given)
        if at_ms is None:
            raise UnknownSetting(
                f"start {given!r} is unknown: use earliest, latest, a duration before now such as "
                "2h, or a time such as 2026-01-31T08:00Z"
            )
        return Start("at", at_ms)
    return Start("at", to_ms(given))


def parse_reset(given: str) -> Start | None:
    """A value of `auto.offset.reset`; None for none."""
    words = {
        "earliest": EARLIEST, "smallest": EARLIEST, "beginning": EARLIEST,
        "latest": LATEST, "largest": LATEST, "end": LATEST,
        "none": None, "error": None,
    }  # fmt: skip
    if given in words:
        return words[given]
    kind, colon, duration = given.partition(":")
    if kind != "by_duration" or not colon:
        raise UnknownSetting(
            f"auto.offset.reset {given!r} is not earliest, latest, none or by_duration:PT2H"
        )
    return Start(
        "ago", duration_ms(duration) if is_duration(duration) else iso_duration_ms(duration)
    )


def iso_duration_ms(text: str) -> int:
    """Milliseconds of a duration as ISO 8601 and Java write it: P1DT2H30M."""
    found = _ISO_DURATION.fullmatch(text)
    if not found or not any(found.groups()):
        raise UnknownSetting(f"{text!r} is not a duration: write 2h, PT15M or P1DT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
