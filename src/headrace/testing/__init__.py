"""The test kit: a real broker in the test's process, whole applications, faults, virtual time.

`plugin.py` has the pytest fixtures. `broker_thread.py` runs a broker, `faults.py` makes its
requests fail, `clock.py` is virtual time. `running_app.py` runs an application; `pending_work.py`
knows what it still has to do, `ledger_services.py` delivers its delayed and half messages, and
`topics.py` reads its topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.testing.broker_thread import BrokerThread as BrokerThread
    from headrace.testing.clock import VirtualClock as VirtualClock
    from headrace.testing.faults import Fault as Fault
    from headrace.testing.faults import Faults as Faults
    from headrace.testing.running_app import RunningApp as RunningApp
    from headrace.testing.running_app import run as run
else:
    # pytest imports this package in every run of every project that has Headrace installed, so
    # the broker is imported only when a test asks for it.
    __getattr__, __dir__ = lazy_names(
        __name__,
        running_app="RunningApp run",
        broker_thread="BrokerThread",
        clock="VirtualClock",
        faults="Fault Faults",
    )
