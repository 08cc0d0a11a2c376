"""Hours of the day in which a replay may run, and how fast."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.spark.errors import PipelineError

DAY_MINUTES = 24 * 60
# A batch is one transaction for each task, and what a stop or a closing window takes back.
RECORDS_PER_BATCH = 1_000_000
# With a longer time from batch to batch, a batch has to hold what comes meanwhile.
RECORDS_PER_SECOND = 100_000
_HOURS = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """From one time of day to another, past midnight if the second is earlier; in minutes."""

    begin_minutes: int
    end_minutes: int

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window from `01:00-05:00`; PipelineError with a hint for anything else."""
        found = _HOURS.fullmatch(text.strip())
        numbers = [int(number) for number in found.groups()] if found else []
        if not numbers or max(numbers[0], numbers[2]) > 24 or max(numbers[1], numbers[3]) > 59:
            raise PipelineError(f"{text!r} is not a window of the day", "as in 01:00-05:00")
        begin = numbers[0] * 60 + numbers[1]
        end = numbers[2] * 60 + numbers[3]
        if begin % DAY_MINUTES == end % DAY_MINUTES or max(begin, end) > DAY_MINUTES:
            raise PipelineError(f"{text!r} has no length or no such hour", "as in 01:00-05:00")
        return cls(begin % DAY_MINUTES, end % DAY_MINUTES)

    def wait_minutes(self, minute: float) -> float:
        """Minutes until it opens, from a minute of the day; 0 while it is open."""
        if (minute - self.begin_minutes) % DAY_MINUTES < self._length:
            return 0.0
        return (self.begin_minutes - minute) % DAY_MINUTES

    @property
    def _length(self) -> int:
        return (self.end_minutes - self.begin_minutes) % DAY_MINUTES


def records_per_batch(trigger_seconds: float) -> int:
    """How many records a batch takes unless somebody says so."""
    return max(RECORDS_PER_BATCH, int(RECORDS_PER_SECOND * trigger_seconds))


def records_per_trigger(per_second: float, trigger_seconds: float) -> int:
    """How many records a batch may take for a rate that is not exceeded."""
    if per_second <= 0:
        raise PipelineError(f"{per_second:g} records a second is no rate", "--rate 50000")
    return max(1, int(per_second * trigger_seconds))
