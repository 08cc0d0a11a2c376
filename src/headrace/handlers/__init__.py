"""Handlers: functions that consume messages without loss, without repeats and in order.

`app.py` is what users write against; `spec.py` checks the arguments of a handler, with
`signatures.py` and `policies.py`; `context.py` is what all handlers of an app share.

A message passes these files: `session.py` polls it, `assignment.py` finds its partition,
`scheduler.py` queues it on its lane (`lanes.py`), a thread or task of `workers.py` takes it with
others as a chunk, `chunks.py` runs the chunk, and `execution.py` calls the function in its
transaction. The worker reports the chunk to the scheduler, `progress.py` notes how far the
partition is done, and `assignment.py` commits that offset.

Beside this path, `large.py` puts large messages together, `outputs.py` runs Kafka transactions,
`pressure.py` and `spilling.py` bound the memory. What fails goes to `failures.py`, which puts it
into the retry table (worked by `retries.py`), back to its topic, or to `dead_letters.py`;
`parked_lanes.py` remembers which keys wait in the retry table.
`runner.py` restarts a session after an outage, `background.py` runs the tasks beside the handlers,
`services.py` runs services of their own, and `tables.py` reads compacted topics.
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
