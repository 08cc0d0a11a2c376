"""The values of arguments and options: durations, pairs, addresses, partitions, settings files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.common.errors import CliError
from headrace.client.wire.addresses import parse_address
from headrace.timing.durations import UNITS_MS, duration_ms, is_duration

if TYPE_CHECKING:
    from headrace.client.admin.partition_sets import PartitionSelection

# A typo such as 0-99999999 must not fill the memory.
PARTITIONS_MAX = 1_000_000

_FORM = re.compile(r"(?P<topic>[^:]+)(:(?P<numbers>\d+(-\d+)?(,\d+(-\d+)?)*))?")


def now_ms() -> int:
    """The time at which the command runs, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds of a duration; its parts are added up."""
    if not is_duration(text):
        raise CliError(
            f"{option} {text!r} is not a duration",
            "use numbers with ms, s, m, h, d or w: 90s, 15m, 1h30m",
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


def parse_pairs(pairs: Iterable[str] | None, option: str) -> dict[str, str]:
    """Split NAME=VALUE arguments; of a name given twice the last value counts."""
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CliError(
                f"{option} {pair!r} is not NAME=VALUE", f"as in {option} retention.ms=60000", 2
            )
        parsed[name.strip()] = value
    return parsed


def split_address(text: str, option: str, default_port: int | None = None) -> tuple[str, int]:
    """Split HOST:PORT; brackets around an IPv6 host are removed."""
    try:
        return parse_address(text, default_port)
    except ValueError as problem:
        raise CliError(f"{option} {problem}", f"for example {option} 127.0.0.1:9092", 2) from None


def parse_selection(texts: Iterable[str] | None, option: str) -> PartitionSelection:
    """Topics and partitions of an option that may be repeated."""
    return dict(parse_partitions(text, option) for text in texts or ())


def parse_partitions(text: str, option: str) -> tuple[str, list[int] | None]:
    """Topic and partitions; None for all of them."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise CliError(
            f"{option} {text!r} is not TOPIC or TOPIC:PARTITIONS",
            f"for example {option} orders or {option} orders:0,2-4",
            2,
        )
    if form["numbers"] is None:
        return form["topic"], None
    numbers: set[int] = set()
    for part in form["numbers"].split(","):
        first, dash, last = part.partition("-")
        span = range(int(first), int(last if dash else first) + 1)
        if not span or span[-1] > PARTITIONS_MAX:
            raise CliError(
                f"{option} {text!r} has no partitions {part!r}",
                f"write a range from low to high, up to {PARTITIONS_MAX}",
                2,
            )
        numbers.update(span)
    return form["topic"], sorted(numbers)


def read_properties(path: Path) -> dict[str, str]:
    """Read NAME=VALUE lines; `#` and `!` start comments, a trailing backslash continues a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CliError(
            f"cannot read the settings file {path}: {reason}", "give a readable file to --config"
        ) from None
    properties = {}
    for number, line in _logical_lines(text):
        name, equals, value = line.partition("=")
        if not equals:
            raise CliError(f"{path}:{number}: {line!r} is not NAME=VALUE", "as in num.partitions=3")
        properties[name.strip()] = value.strip()
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        lines.append((number, pending + line))
        pending = ""
    if pending:
        lines.append((len(text.splitlines()), pending))
    return lines
