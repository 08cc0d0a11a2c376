"""Ctrl-C and SIGTERM for verbs that run until they are told to end."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` at Ctrl-C or SIGTERM.

    From a thread of its own: a handler runs in the middle of whatever the main thread does, and
    there it would wait for ever for a lock that this very thread holds, as that of an Event.
    """

    def handle(*_: object) -> None:
        _thread.start_new_thread(stop, ())

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
