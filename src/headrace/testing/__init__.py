"""The test kit: a real broker in the test's process, whole applications, faults, virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.testing.app_kit import RunningApp as RunningApp
    from headrace.testing.app_kit import run as run
    from headrace.testing.broker_thread import BrokerThread as BrokerThread
    from headrace.testing.clock import VirtualClock as VirtualClock
    from headrace.testing.faults import Fault as Fault
    from headrace.testing.faults import Faults as Faults
else:
    # pytest imports this package in every run of every project that has Headrace installed, so
    # the broker is imported only when a test asks for it.
    __getattr__, __dir__ = lazy_names(
        __name__,
        app_kit="RunningApp run",
        broker_thread="BrokerThread",
        clock="VirtualClock",
        faults="Fault Faults",
    )
