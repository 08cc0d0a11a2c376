"""Log compaction: keeps the last record of every key, in bounded memory, outside the event loop.

`cleaner.py` picks logs by `planning.py`, has them cleaned in a worker process and swaps the result
in. In the worker, `clean.py` fills `offset_map.py` with the keys of the dirty part, filters every
batch (`batch_filter.py`, `transactions.py`) and writes `output.py`; `batches.py` and
`raw_records.py` read and write batches, `options.py` has the values that go to a worker and back.
"""

from __future__ import annotations

from headrace.storage.cleaner.cleaner import Cleaner, CleanerLimits
from headrace.storage.cleaner.options import CleanStats

__all__ = ["CleanStats", "Cleaner", "CleanerLimits"]
