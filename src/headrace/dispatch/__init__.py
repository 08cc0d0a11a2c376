"""The idle-partition dispatcher: work goes to whoever is idle."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.dispatch.dispatcher import Dispatcher
    from headrace.dispatch.errors import DispatchError, JobFailed, SpoolFull
    from headrace.dispatch.handle import Handle
    from headrace.dispatch.jobs import Delivery
    from headrace.dispatch.limits import Limits

__all__ = ["Delivery", "DispatchError", "Dispatcher", "Handle", "JobFailed", "Limits", "SpoolFull"]

_HOMES = {
    "Delivery": "headrace.dispatch.jobs",
    "Dispatcher": "headrace.dispatch.dispatcher",
    "Handle": "headrace.dispatch.handle",
    "Limits": "headrace.dispatch.limits",
}


def __getattr__(name: str) -> object:
    # The machines are pure, and load without the client library.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "headrace.dispatch.errors")), name)
