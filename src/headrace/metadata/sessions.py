"""What the sessions of every metadata store share: their clock, and how often they are renewed."""

from __future__ import annotations

import time

# A session is renewed this many times within its timeout.
RENEWALS_PER_TIMEOUT = 3


def system_monotonic_ms() -> int:
    """Milliseconds of the monotonic clock, which all processes of this machine share."""
    return time.monotonic_ns() // 1_000_000
