"""What Spark's Python processes keep from one task to the next."""

from __future__ import annotations

import gc

_is_settled = False


def settle() -> None:
    """Take what this process has loaded out of the garbage collector's sight, at its first task.

    After each task Spark has the collector look through everything that is there, and with Arrow,
    numba and pandas loaded that takes longer than a small task does.
    """
    global _is_settled
    if _is_settled:
        return
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _is_settled = True
        gc.collect()
        gc.freeze()
