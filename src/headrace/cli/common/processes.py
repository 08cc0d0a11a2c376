"""Signals and logging of verbs that run until they are stopped."""

from __future__ import annotations

import _thread
import logging
import signal
from collections.abc import Callable


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` at Ctrl-C or SIGTERM.

    In a thread of its own: a signal handler interrupts the main thread, and would wait forever for
    a lock that the main thread holds, such as that of an Event.
    """

    def handle(*_: object) -> None:
        _thread.start_new_thread(stop, ())

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def start_logging(level: int = logging.INFO) -> None:
    """Log to standard error, with time, level and logger."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
