"""Handlers that never lose, never repeat and keep their order, on any Kafka."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.reliability.alarms import Alarm
    from headrace.reliability.app import App
    from headrace.reliability.errors import HandlerError
    from headrace.reliability.large.large import Large
    from headrace.reliability.message import Message
    from headrace.reliability.outputs import Output
    from headrace.reliability.policies import Backoff, Resend, Retry
    from headrace.reliability.store.store import Store, open_store
    from headrace.reliability.store.transaction import Transaction

__all__ = [
    "Alarm",
    "App",
    "Backoff",
    "HandlerError",
    "Large",
    "Message",
    "Output",
    "Resend",
    "Retry",
    "Store",
    "Transaction",
    "open_store",
]

_HOMES = {
    "Alarm": "alarms",
    "App": "app",
    "Backoff": "policies",
    "HandlerError": "errors",
    "Large": "large.large",
    "Message": "message",
    "Output": "outputs",
    "Resend": "policies",
    "Retry": "policies",
    "Store": "store",
    "Transaction": "store",
    "open_store": "store",
}


def __getattr__(name: str) -> object:
    # What is not used is not loaded: an outbox in a web application needs no consumer.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
