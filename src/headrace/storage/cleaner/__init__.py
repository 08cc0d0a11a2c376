"""Log compaction: the last record of every key stays, in bounded memory, away from the loop."""

from __future__ import annotations

from headrace.storage.cleaner.cleaner import Cleaner, CleanerLimits
from headrace.storage.cleaner.options import CleanStats

__all__ = ["CleanStats", "Cleaner", "CleanerLimits"]
