"""The settings of transaction coordination."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits; the defaults are Kafka's."""

    timeout_ms_max: int = 15 * 60 * 1000
    id_expiration_ms: int = 7 * 24 * 3_600 * 1000
