"""The spool: a node's queue of unfinished jobs, stored where a crash does not reach it.

`port.py` says what a spool does and which changes it keeps. `writer.py` is the thread that writes
them, and the limit on how much a node may hold. A spool is a file (`file.py`, with the bytes in
`frames.py`) or a table that all nodes share (`table.py`).
"""

from __future__ import annotations
