"""Items as records of the work topic; pure.

A record without a value only gives the partition's token back, whoever has sent it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.message import ID_HEADER
from headrace.dispatch.outcomes import FENCE_HEADER, SUBMITTED_HEADER, Headers, whole


class Work(NamedTuple):
    """What a record's headers say: the item's id, its fence as text, and when it was submitted."""

    id: str
    fence: str
    submitted_ms: int


def headers_of(work: Work) -> Headers:
    """The headers of an item's record."""
    return [
        (ID_HEADER, work.id.encode()),
        (FENCE_HEADER, work.fence.encode()),
        (SUBMITTED_HEADER, b"%d" % work.submitted_ms),
    ]


def parse_headers(headers: Iterable[Any] | None) -> Work:
    """What the headers say; empty where they say nothing."""
    found = {name: (text or b"").decode("utf-8", "replace") for name, text in headers or ()}
    submitted_ms = whole(found.get(SUBMITTED_HEADER, ""))
    return Work(found.get(ID_HEADER, ""), found.get(FENCE_HEADER, ""), submitted_ms)
