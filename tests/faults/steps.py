"""The steps of a message's way through the layer, each a place where something may end.

A step is a function of the layer and a side of it. `install` wraps the functions of the steps under
test, inside the process under test; the layer knows nothing of it.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Literal

Side = Literal["before", "after"]
How = Literal["die", "tell"]


@dataclass(frozen=True)
class Step:
    """A moment right before or after a call."""

    name: str
    target: str = ""  # module:Class.function; empty for the handler's own steps
    side: Side = "before"
    # A call counts only when it is given something to do: its first argument is not empty.
    with_work: bool = False

    def resolve(self) -> tuple[Any, str]:
        """The class and the name of the function."""
        module, _, path = self.target.partition(":")
        owner: Any = import_module(f"headrace.{module}")
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        getattr(owner, name)
        return owner, name


# From received to committed.
WAY = (
    Step("received", "handlers.scheduler:Scheduler.add", "before"),
    Step("queued", "handlers.scheduler:Scheduler.add", "after"),
    Step("taken", "handlers.chunks:ChunkRunner.run", "before"),
    Step("claimed", "store.inbox:Inbox.claim", "after"),
    Step("handler begun"),
    Step("handled"),
    Step("outbox written", "store.transaction:Transaction.flush", "after"),
    Step("store committed", "handlers.execution:Execution.confirm", "before"),
    Step("settled", "handlers.lanes:Lanes.settle", "after"),
    Step("offsets committing", "handlers.assignment:Assignment._send_commit", "before"),
    Step("offsets committed", "handlers.assignment:Assignment._send_commit", "after"),
)
# A failed message's.
FAILED = (
    Step("failed", "handlers.chunks:ChunkRunner.put_away_failed", "before"),
    Step("parking", "handlers.failures:Failures._park", "before"),
    Step("parked", "handlers.failures:Failures._park", "after"),
    Step("parking behind", "handlers.failures:Failures.park_behind", "before"),
    Step("parked behind", "handlers.failures:Failures.park_behind", "after"),
    Step("retry leased", "handlers.retries:RetryJob._try", "before"),
    Step("retry removing", "store.retries:Retries.remove", "before"),
    Step("retry removed", "store.retries:Retries.remove", "after"),
    Step("retry done", "handlers.retries:RetryJob._try", "after"),
    Step("failed again", "handlers.failures:Failures.failed_again", "before"),
    Step("put away again", "handlers.failures:Failures.failed_again", "after"),
    Step("giving up", "handlers.dead_letters:DeadLetters.give_up", "before"),
    Step("letter indexed", "handlers.dead_letters:DeadLetters._publish", "before"),
    Step("letter sent", "handlers.dead_letters:DeadLetters._send", "after"),
    Step("given up", "handlers.dead_letters:DeadLetters.give_up", "after"),
)
# A message's that goes out with the effect.
RELAYED = (
    Step("relaying", "outbox.relay:Relay._send", "before", with_work=True),
    Step("relayed", "outbox.relay:Relay._send", "after", with_work=True),
    Step("marking sent", "store.outbox:Outbox.mark_sent", "before"),
    Step("marked sent", "store.outbox:Outbox.mark_sent", "after"),
)
HANDLER_STEPS = WAY + FAILED + RELAYED
BY_NAME = {step.name: step for step in HANDLER_STEPS}


@dataclass(frozen=True)
class Fault:
    """At the n-th passage of a step: die by SIGKILL, or tell the test and wait for its word."""

    step: str
    nth: int = 1
    how: How = "die"
    # Where the test listens, for "tell".
    port: int = 0
    # Where the step is noted right before the end, so that the test knows it was there.
    note: str = ""


class Faults:
    """The faults of this process; a step counts its passages from any thread."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = {fault.step: fault for fault in faults}
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def install(self) -> None:
        """Wrap the functions of the steps that have a fault."""
        for name in self._faults:
            step = BY_NAME[name]
            if step.target:
                owner, function = step.resolve()
                setattr(owner, function, self._wrapped(step, getattr(owner, function)))

    def reach(self, step: str) -> None:
        """A thread is at this step now."""
        fault = self._faults.get(step)
        if fault is None:
            return
        with self._lock:
            self._passed[step] += 1
            is_due = self._passed[step] == fault.nth
        if is_due and fault.how == "die":
            with open(fault.note, "w") as note:  # noqa: PTH123
                note.write(step)
            os.kill(os.getpid(), signal.SIGKILL)
        elif is_due:
            with socket.create_connection(("127.0.0.1", fault.port)) as line:
                line.sendall(step.encode() + b"\n")
                line.recv(1)

    def _wrapped(self, step: Step, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            counts = not step.with_work or bool(args[1])
            if counts and step.side == "before":
                self.reach(step.name)
            answer = original(*args, **kwargs)
            if counts and step.side == "after":
                self.reach(step.name)
            return answer

        return wrapper
