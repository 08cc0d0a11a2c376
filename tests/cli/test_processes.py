"""Ctrl-C comes at any moment, also while the main thread holds a lock of what it is to set."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from headrace.cli.common.processes import on_stop


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_wait_is_heard(number: signal.Signals) -> None:
    stop = threading.Condition(threading.Lock())
    heard = threading.Event()

    def told() -> None:
        with stop:
            heard.set()

    on_stop(told)
    with stop:
        # As the main thread does for a moment in every wait.
        os.kill(os.getpid(), number)
    assert heard.wait(30)
