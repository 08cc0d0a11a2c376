"""Items as records of the work topic; pure.

A record without a value only gives the partition's token back, whoever has sent it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.dispatch.outcomes import FENCE_HEADER, NODE_HEADER, Headers
from headrace.reliability.message import ID_HEADER


class Work(NamedTuple):
    """What a record's headers say: the item's id, its fence as text, and who submitted it."""

    id: str
    fence: str
    node: str


def headers_of(work: Work) -> Headers:
    """The headers of an item's record."""
    return [
        (ID_HEADER, work.id.encode()),
        (FENCE_HEADER, work.fence.encode()),
        (NODE_HEADER, work.node.encode()),
    ]


def parse_headers(headers: Iterable[Any] | None) -> Work:
    """What the headers say; empty where they say nothing."""
    found = {name: (text or b"").decode("utf-8", "replace") for name, text in headers or ()}
    return Work(found.get(ID_HEADER, ""), found.get(FENCE_HEADER, ""), found.get(NODE_HEADER, ""))
