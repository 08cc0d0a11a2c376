"""The half service, and the half messages that it knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.client.clock import Clock
from headrace.ledger.half.commands import Headers, Prepared
from headrace.ledger.half.machine import Decided, HalfLimits, HalfMachine, state_of
from headrace.ledger.half.states import State
from headrace.ledger.inspection import read_entries
from headrace.ledger.machine import NEVER_MS, LedgerEntry
from headrace.ledger.service import LedgerOptions, LedgerService
from headrace.telemetry.alarms import Alarms

DECIDED = (State.COMMITTED, State.ROLLED_BACK)


def half_service(
    settings: Mapping[str, Any],
    *,
    clock: Clock | None = None,
    alarms: Alarms | None = None,
    options: LedgerOptions | None = None,
    limits: HalfLimits | None = None,
) -> LedgerService:
    """One instance of the service; `settings` are client settings by Kafka's names."""
    machine = HalfMachine(limits)
    return LedgerService(machine, settings, clock=clock, alarms=alarms, options=options)


class HalfStatus(NamedTuple):
    """What the service knows of a half message; the payload is dropped once it is decided."""

    id: str
    state: State
    # When it was prepared, or when its decision was carried out.
    at_ms: int
    checks: int
    # When it is checked, alarmed about or forgotten next; None if it is being acted on now.
    due_ms: int | None
    target: str = ""
    group: str = ""
    refusal: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    delay: tuple[str, str] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether its decision was carried out."""
        return self.state in DECIDED


def half_statuses(settings: Mapping[str, Any], id: str | None = None) -> Iterator[HalfStatus]:
    """All half messages, or the one with this id; TimeoutError if the brokers do not answer."""
    return map(_status, read_entries(settings, HalfMachine(), id))


def _status(entry: LedgerEntry) -> HalfStatus:
    state = state_of(entry)
    due_ms = entry.due_ms if 0 < entry.due_ms < NEVER_MS else None
    status = HalfStatus(entry.id, state, entry.at_ms, entry.count, due_ms)
    if not entry.body:
        return status
    kept = Decided.unpack(entry.body) if state in DECIDED else Prepared.unpack(entry.body)
    return status._replace(**kept._asdict())
