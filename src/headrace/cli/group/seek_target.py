"""Where a group is to go: the `--to` argument of `headrace group seek`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from headrace.cli.common.durations import is_duration, parse_duration_ms, parse_time_ms
from headrace.cli.common.errors import CliError

FORMS = (
    "earliest, latest, current, N, +N, -N, -15m (that long ago), a time such as "
    "2024-05-01T12:00Z, @MS, file:PATH or group:NAME"
)


class Kind(Enum):
    """The ways to say a place."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    FILE = auto()
    GROUP = auto()


@dataclass(frozen=True, slots=True)
class Target:
    """A place as asked for; `number` is an offset, records or milliseconds, `name` the rest."""

    kind: Kind
    number: int = 0
    name: str = ""


_WORDS = {"earliest": Kind.EARLIEST, "latest": Kind.LATEST, "current": Kind.CURRENT}
_NAMED = {"file": Kind.FILE, "group": Kind.GROUP}


def parse_target(text: str, now_ms: int) -> Target:
    """Read `--to`: a number alone is an offset, with a sign a shift, with a unit a time ago."""
    if text in _WORDS:
        return Target(_WORDS[text])
    before, colon, after = text.partition(":")
    if colon and before in _NAMED and after:
        return Target(_NAMED[before], name=after)
    if re.fullmatch(r"\d+", text):
        return Target(Kind.OFFSET, int(text))
    if re.fullmatch(r"[+-]\d+", text):
        return Target(Kind.SHIFT, int(text))
    if re.fullmatch(r"@\d+", text):
        return Target(Kind.TIME, int(text[1:]))
    if text.startswith("-") and is_duration(text[1:]):
        return Target(Kind.TIME, now_ms - parse_duration_ms(text[1:], "--to"))
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise CliError(f"--to {text!r} is not understood", f"it is {FORMS}", 2)
    return Target(Kind.TIME, time_ms)
