"""The delay service: the delay machine on the shared ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.clock import Clock
from headrace.ledger.delay.machine import DelayMachine
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
