"""The settings of half messages: when a sender is asked, how often, and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLimits:
    """As in RocketMQ: asked after 6 s, then every 30 s, 15 times in all."""

    first_check_ms: int = 6_000
    check_every_ms: int = 30_000
    checks_max: int = 15
    # How long a decision is remembered, for repeats, contradictions and a prepare that comes late.
    remember_ms: int = DAY_MS
    # How often a parked one rings its alarm again, until a person has decided.
    remind_ms: int = DAY_MS
