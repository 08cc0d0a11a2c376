"""From when a delay counts: from the append to `headrace.delay`, by the brokers' clock."""

from __future__ import annotations

from headrace.client.clock import Clock, SystemClock
from headrace.client.delayed import After, At, deliver_at_ms


def by_clock(clock: Clock, after: After | None, at: At | None) -> tuple[After | None, At | None]:
    """`after` and `at` for a producer; a clock that a test turns is not the brokers', so it counts.

    ValueError if both are there.
    """
    if isinstance(clock, SystemClock):
        return after, at
    return None, deliver_at_ms(clock.now_ms(), after, at)
