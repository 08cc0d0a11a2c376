"""Opening a log: quickly after a clean stop, batch by batch after a crash.

`recovery.py` decides how a log is opened; `crash_check.py` checks what a crash left, `repair.py`
rebuilds wrong indexes, `replay.py` rebuilds producers and epochs from batches.
"""
