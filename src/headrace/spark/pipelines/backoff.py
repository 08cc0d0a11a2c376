"""How long a pipeline that failed waits before it starts again."""

from __future__ import annotations

FIRST_SECONDS = 1.0
MOST_SECONDS = 60.0


class Backoff:
    """Doubles from failure to failure, and begins anew after a success."""

    def __init__(self, first_s: float = FIRST_SECONDS, most_s: float = MOST_SECONDS) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        wait_s: float = min(self._most_s, self._first_s * 2**self.failures)
        self.failures += 1
        return wait_s

    def succeeded(self) -> None:
        """Something went well since the last failure."""
        self.failures = 0
