"""Who still has to confirm a message: pure rules."""

from __future__ import annotations

from collections.abc import Iterable


def remaining(waiting: list[str] | None, confirmed_by: Iterable[str | None]) -> list[str] | None:
    """The groups still awaited after these confirmations, or None when all is confirmed.

    An empty `waiting` means whoever comes first. A confirmation without a group counts where
    there is no doubt whom it stands for.
    """
    left = waiting
    for group in confirmed_by:
        if left is None or left in ([], [group]) or (group is None and len(left) == 1):
            return None
        left = [name for name in left if name != group]
    return left
