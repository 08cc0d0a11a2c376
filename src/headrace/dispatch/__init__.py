"""The idle-partition dispatcher: work goes to whoever is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.dispatch.dispatcher import Dispatcher as Dispatcher
    from headrace.dispatch.errors import DispatchError as DispatchError
    from headrace.dispatch.errors import JobFailed as JobFailed
    from headrace.dispatch.errors import SpoolFull as SpoolFull
    from headrace.dispatch.handle import Handle as Handle
    from headrace.dispatch.jobs import Delivery as Delivery
    from headrace.dispatch.limits import Limits as Limits
else:
    # The machines are pure, and load without the client library.
    __getattr__, __dir__ = lazy_names(
        __name__,
        dispatcher="Dispatcher",
        errors="DispatchError JobFailed SpoolFull",
        handle="Handle",
        jobs="Delivery",
        limits="Limits",
    )
