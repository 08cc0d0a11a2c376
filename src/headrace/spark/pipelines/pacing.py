"""When and how fast a pipeline runs: its hours, its rate, its pauses after failures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.spark.errors import PipelineError

DAY_MINUTES = 24 * 60
# A batch is one transaction for each task, and what is lost when a run stops in the middle.
RECORDS_PER_BATCH = 1_000_000
# With a longer trigger interval, a batch has to hold what arrives in between.
RECORDS_PER_SECOND = 100_000
FIRST_PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0

_HOURS = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_UNIT_SECONDS = {"m": 60.0, "h": 3600.0, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of the day, in minutes; past midnight if the end is before the beginning."""

    begin_minutes: int
    end_minutes: int

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window from `01:00-05:00`; PipelineError with a hint for anything else."""
        found = _HOURS.fullmatch(text.strip())
        numbers = [int(number) for number in found.groups()] if found else []
        if not numbers or max(numbers[0], numbers[2]) > 24 or max(numbers[1], numbers[3]) > 59:
            raise PipelineError(f"{text!r} is not a window of the day", "such as 01:00-05:00")
        begin = numbers[0] * 60 + numbers[1]
        end = numbers[2] * 60 + numbers[3]
        if begin % DAY_MINUTES == end % DAY_MINUTES or max(begin, end) > DAY_MINUTES:
            raise PipelineError(f"{text!r} is empty or goes beyond the day", "such as 01:00-05:00")
        return cls(begin % DAY_MINUTES, end % DAY_MINUTES)

    def wait_minutes(self, minute: float) -> float:
        """Minutes until it opens, from a minute of the day; 0 while it is open."""
        length = (self.end_minutes - self.begin_minutes) % DAY_MINUTES
        if (minute - self.begin_minutes) % DAY_MINUTES < length:
            return 0.0
        return (self.begin_minutes - minute) % DAY_MINUTES


class Backoff:
    """The pause after a failure: it doubles with each one, and starts over after a success."""

    def __init__(
        self, first_s: float = FIRST_PAUSE_SECONDS, pause_s_max: float = PAUSE_SECONDS_MAX
    ) -> None:
        self._first_s = first_s
        self._pause_s_max = pause_s_max
        self.failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        wait_s: float = min(self._pause_s_max, self._first_s * 2**self.failures)
        self.failures += 1
        return wait_s

    def succeeded(self) -> None:
        """Start over with the first pause."""
        self.failures = 0


def records_per_batch(interval_s: float) -> int:
    """How many records a batch may take by default."""
    return max(RECORDS_PER_BATCH, int(RECORDS_PER_SECOND * interval_s))


def records_per_trigger(records_per_s: float, interval_s: float) -> int:
    """How many records a batch may take at a given rate."""
    return max(1, int(records_per_s * interval_s))


def rate_interval_s(records_per_s: float, interval_s: float) -> float:
    """The interval between batches at a given rate: long enough for a whole record."""
    if records_per_s <= 0:
        raise PipelineError(f"{records_per_s:g} records a second is not a rate", "--rate 50000")
    return max(interval_s, 1 / records_per_s)


def trigger_seconds(text: str) -> float:
    """Seconds of `10 seconds` or `1 minute`; PipelineError for anything else."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise PipelineError(f"trigger {text!r} is not an interval", "such as 10 seconds, 1 minute")
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit.startswith(("ms", "milli")) else number * _UNIT_SECONDS[unit[0]]
