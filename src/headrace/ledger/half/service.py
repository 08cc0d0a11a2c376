"""The half service: holds prepared messages, asks for decisions, delivers what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.clock import Clock
from headrace.ledger.half.limits import HalfLimits
from headrace.ledger.half.machine import HalfMachine
from headrace.ledger.service import LedgerOptions, LedgerService
from headrace.telemetry.alarms import Alarms


def half_service(
    settings: Mapping[str, Any],
    *,
    clock: Clock | None = None,
    alarms: Alarms | None = None,
    options: LedgerOptions | None = None,
    limits: HalfLimits | None = None,
) -> LedgerService:
    """One instance; several share the work and take over from each other."""
    machine = HalfMachine(limits)
    return LedgerService(machine, settings, clock=clock, alarms=alarms, options=options)
