"""The messages that wait for their time, looked at from outside the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.ledger import looking
from headrace.ledger.delay.machine import DelayMachine, State
from headrace.ledger.packing import unpack_message


class Pending(NamedTuple):
    """A delayed message that the service has in hand."""

    id: str
    due_ms: int
    # When it was scheduled, by the broker's clock.
    at_ms: int
    target: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def pending(settings: Mapping[str, Any], id: str | None = None) -> Iterator[Pending]:
    """All that wait, or the one with this id; the next due one first."""
    for entry in looking.entries(settings, DelayMachine(), id):
        if entry.kind == State.SCHEDULED:
            yield Pending(entry.id, entry.due_ms, entry.at_ms, *unpack_message(entry.body))
