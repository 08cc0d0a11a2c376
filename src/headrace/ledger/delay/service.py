"""The delay service, and the delayed messages that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.client.clock import Clock
from headrace.ledger.delay.machine import DelayMachine, State
from headrace.ledger.inspection import read_entries
from headrace.ledger.records import unpack_message
from headrace.ledger.service import LedgerOptions, LedgerService
from headrace.telemetry.alarms import Alarms


def delay_service(
    settings: Mapping[str, Any],
    *,
    clock: Clock | None = None,
    alarms: Alarms | None = None,
    options: LedgerOptions | None = None,
) -> LedgerService:
    """One instance of the service; `settings` are client settings by Kafka's names."""
    return LedgerService(DelayMachine(), settings, clock=clock, alarms=alarms, options=options)


class DelayedMessage(NamedTuple):
    """A delayed message that is waiting for its time."""

    id: str
    due_ms: int
    # When it was scheduled, by the broker's clock.
    at_ms: int
    target: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def pending(settings: Mapping[str, Any], id: str | None = None) -> Iterator[DelayedMessage]:
    """All waiting messages, or the one with this id; the next due one first."""
    for entry in read_entries(settings, DelayMachine(), id):
        if entry.state == State.SCHEDULED:
            yield DelayedMessage(entry.id, entry.due_ms, entry.at_ms, *unpack_message(entry.body))
