"""The loop that tries a call again while its failure may pass."""

from __future__ import annotations

import pytest

from headrace.client.retry_loop import retry


class Call:
    """Fails with each error in turn, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def at_once(error: Exception) -> float | None:
    return 0.0 if isinstance(error, OSError) else None


def test_a_passing_failure_is_tried_again() -> None:
    call = Call(OSError("away"), OSError("still away"))
    assert retry(call, at_once) == "done"
    assert call.calls == 3


def test_a_lasting_failure_is_raised_at_once() -> None:
    call = Call(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry(call, at_once)
    assert call.calls == 1


def test_the_last_attempt_raises_its_own_error() -> None:
    call = Call(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="second"):
        retry(call, at_once, attempts_max=2)


def test_the_time_counts_from_the_first_attempt() -> None:
    times = iter([0.0, 4.0, 11.0])
    call = Call(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="second"):
        retry(call, at_once, timeout_s=10.0, clock=lambda: next(times))
