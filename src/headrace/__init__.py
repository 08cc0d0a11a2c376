"""An event-streaming platform for Python: what applications import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import Consumer, Producer
    from headrace.dispatch import Dispatcher
    from headrace.reliability import (
        App,
        Backoff,
        Large,
        Message,
        Output,
        Resend,
        Retry,
        Transaction,
    )

__all__ = [
    "App",
    "Backoff",
    "Consumer",
    "Dispatcher",
    "Large",
    "Message",
    "Output",
    "Producer",
    "Resend",
    "Retry",
    "Transaction",
]

_HOMES = {
    "Consumer": "headrace.client",
    "Dispatcher": "headrace.dispatch",
    "Producer": "headrace.client",
}


def __getattr__(name: str) -> object:
    # The broker and the command line tool start without what they do not use.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "headrace.reliability")), name)
