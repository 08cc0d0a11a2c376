"""The test kit: a real broker in the test's process, whole applications, faults, virtual time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.app_kit import RunningApp, run
    from headrace.testing.broker_thread import BrokerThread
    from headrace.testing.clock import VirtualClock
    from headrace.testing.faults import Fault, Faults

__all__ = ["BrokerThread", "Fault", "Faults", "RunningApp", "VirtualClock", "run"]

_HOMES = {
    "BrokerThread": "headrace.testing.broker_thread",
    "Fault": "headrace.testing.faults",
    "Faults": "headrace.testing.faults",
    "RunningApp": "headrace.testing.app_kit",
    "VirtualClock": "headrace.testing.clock",
    "run": "headrace.testing.app_kit",
}


def __getattr__(name: str) -> object:
    # pytest imports this package in every run of every project that has Headrace installed, so
    # the broker is imported only when a test asks for it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
