"""Options that select partitions: `orders:0-2,5`, and `orders` for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.cli.common.errors import CliError
from headrace.client.admin.partition_sets import Selection

_FORM = re.compile(r"(?P<topic>[^:]+)(:(?P<numbers>\d+(-\d+)?(,\d+(-\d+)?)*))?")

# A typing error such as 0-99999999 shall not fill the memory.
PARTITIONS_MAX = 1_000_000


def parse_selection(texts: Iterable[str] | None, option: str) -> Selection:
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
            raise CliError(f"{option} {text!r} has no partitions {part!r}", exit_code=2)
        numbers.update(span)
    return form["topic"], sorted(numbers)
