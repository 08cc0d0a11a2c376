"""The position that a group seeks to, in every form that an operator may write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from headrace.client.admin.errors import AdminError
from headrace.client.times import parse_time_ms
from headrace.timing.durations import duration_ms, is_duration

FORMS = (
    "earliest, latest, current, N, +N, -N, -15m (that long ago), a time such as "
    "2024-05-01T12:00Z, @MS, file:PATH or group:NAME"
)


class Kind(Enum):
    """The kinds of positions."""

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
    """A position; `number` is an offset, records or milliseconds, `name` a file or group."""

    kind: Kind
    number: int = 0
    name: str = ""


_WORDS = {"earliest": Kind.EARLIEST, "latest": Kind.LATEST, "current": Kind.CURRENT}
_NAMED = {"file": Kind.FILE, "group": Kind.GROUP}


def parse_target(text: str, now_ms: int) -> Target:
    """Read a position: a plain number is an offset, a signed one a shift, one with a unit a time.

    AdminError if it is none of FORMS.
    """
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
        return Target(Kind.TIME, now_ms - duration_ms(text[1:]))
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise AdminError(f"{text!r} is not a position", f"use {FORMS}")
    return Target(Kind.TIME, time_ms)
