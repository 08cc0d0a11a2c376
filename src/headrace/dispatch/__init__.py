"""The dispatcher: sends each job to a partition that is idle, so that no job waits behind another.

The path of a job: `dispatcher.py` takes it from the user, `submitter_service.py` stores it through
`spool/writer.py` and lets `submitter_machine.py` decide with which token it is sent;
`token_service.py` exchanges tokens with a store of `tokens/`. At the partition's owner,
`consumers.py` reads the record, `owner_service.py` asks `owner_machine.py` whether the job may
run, and `workers.py` runs it. The outcome goes to TOPIC.done, back through `consumers.py` and
`submitter_service.py`, to the caller's handle.

`…_machine` modules are pure; they return the effects of `effects.py`, which the `…_service` modules
carry out. `owned_partition.py` has the states of a partition, `records.py` the records of both
topics, `jobs.py` the payloads. `node.py` connects and starts the parts by its `options.py`;
`topic_admin.py` asks the brokers, `lookup_service.py` looks up old outcomes, `metrics.py` shows
the counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.dispatch.dispatcher import Dispatcher as Dispatcher
    from headrace.dispatch.dispatcher import Handle as Handle
    from headrace.dispatch.errors import DispatchError as DispatchError
    from headrace.dispatch.errors import JobFailed as JobFailed
    from headrace.dispatch.errors import SpoolFull as SpoolFull
    from headrace.dispatch.jobs import Delivery as Delivery
    from headrace.dispatch.options import Limits as Limits
else:
    # Lazily, since the machines are pure and load without the client library.
    __getattr__, __dir__ = lazy_names(
        __name__,
        dispatcher="Dispatcher Handle",
        errors="DispatchError JobFailed SpoolFull",
        jobs="Delivery",
        options="Limits",
    )
