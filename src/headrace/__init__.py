"""An event-streaming platform for Python: what applications import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.client import Consumer as Consumer
    from headrace.client import Producer as Producer
    from headrace.client.message import Message as Message
    from headrace.dispatch import Dispatcher as Dispatcher
    from headrace.handlers import App as App
    from headrace.handlers import Backoff as Backoff
    from headrace.handlers import Output as Output
    from headrace.handlers import Resend as Resend
    from headrace.handlers import Retry as Retry
    from headrace.large import Large as Large
    from headrace.store import Transaction as Transaction
else:
    # The broker and the command line tool start without what they do not use.
    __getattr__, __dir__ = lazy_names(
        __name__,
        client="Consumer Producer",
        client__message="Message",
        dispatch="Dispatcher",
        handlers="App Backoff Output Resend Retry",
        large="Large",
        store="Transaction",
    )
