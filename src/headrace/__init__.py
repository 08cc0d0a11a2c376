"""An event-streaming platform for Python: what applications import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import Consumer, Producer
    from headrace.reliability import App, Backoff, Message, Output, Resend, Retry, Transaction

__all__ = [
    "App",
    "Backoff",
    "Consumer",
    "Message",
    "Output",
    "Producer",
    "Resend",
    "Retry",
    "Transaction",
]

_CLIENT = ("Consumer", "Producer")


def __getattr__(name: str) -> object:
    # The broker and the command line tool start without what they do not use.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "headrace.client" if name in _CLIENT else "headrace.reliability"
    return getattr(import_module(home), name)
