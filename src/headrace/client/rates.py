"""A limit of so many records a second, pure: time comes in as an argument."""

from __future__ import annotations


class Rate:
    """Gives each record its turn; up to a second's worth may go at once after a quiet time."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        # When the last record given a turn would be due at an even pace.
        self._due_s = float("-inf")

    def wait_s(self, records: int, now_s: float, most_s: float = float("inf")) -> float | None:
        """How long these records wait for their turn; None, without a turn, if above `most_s`."""
        due_s = max(self._due_s, now_s - 1.0) + records / self.per_second
        wait_s = max(0.0, due_s - now_s)
        if wait_s > most_s:
            return None
        self._due_s = due_s
        return wait_s
