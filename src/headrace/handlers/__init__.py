"""Handlers: functions that consume messages without loss, without repeats and in order.

`app.py` is what users write against; `spec.py` checks what they said about a handler, with
`signatures.py` and `policies.py`. `runner.py` keeps one thread per handler going, and
`session.py` is one consumer's life in it: it polls, hands messages to `engine.py`, and commits
through `assignment.py`. The engine decides with `lanes.py` and `progress.py` (pure) which message
runs next; `workers.py` and `async_workers.py` take chunks from it and run them through
`batches.py` and `execution.py`. What fails goes to `failures.py`, which puts it into the retry
table (worked by `retries.py`), back to its topic, or to `dead_letters.py`. `pressure.py` and
`spilling.py` bound the memory. `background.py` runs the jobs beside the handlers, `services.py`
the services on their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.handlers.app import App as App
    from headrace.handlers.outputs import Output as Output
    from headrace.handlers.policies import Backoff as Backoff
    from headrace.handlers.policies import Resend as Resend
    from headrace.handlers.policies import Retry as Retry
else:
    # What is not used is not loaded.
    __getattr__, __dir__ = lazy_names(
        __name__, app="App", outputs="Output", policies="Backoff Resend Retry"
    )
