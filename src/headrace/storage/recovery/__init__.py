"""Opening a log: quickly after a clean stop, batch by batch after a crash.

`recovery.py` decides how a log is opened; `crash_check.py` looks at what a crash left,
`repair.py` makes wrong indexes again, `replay.py` rebuilds producers and epochs from batches.
"""
