"""The bound of the local queue: first come, first served, or refused."""

from __future__ import annotations

import pytest

from headrace.dispatch.errors import DispatchError, SpoolFull
from headrace.dispatch.spool.writer import SpoolCapacity


def test_who_does_not_fit_waits_in_order() -> None:
    capacity = SpoolCapacity(2, 100, "wait")
    seen: list[str] = []
    for name, jobs in (("a", 1), ("b", 2), ("c", 1)):
        capacity.reserve(jobs, 10, lambda _error, name=name: seen.append(name))  # type: ignore[misc]
    # The third would fit, but the second came before it.
    assert (seen, capacity.waiting) == (["a"], 2)
    capacity.release(1, 10)
    assert (seen, capacity.jobs) == (["a", "b"], 2)
    capacity.release(2, 10)
    assert (seen, capacity.jobs, capacity.bytes) == (["a", "b", "c"], 1, 10)


def test_bytes_are_bounded_too() -> None:
    capacity = SpoolCapacity(10, 100, "refuse")
    capacity.reserve(1, 90, lambda _error: None)
    with pytest.raises(SpoolFull, match="90 bytes"):
        capacity.reserve(1, 11, lambda _error: None)
    capacity.reserve(1, 10, lambda _error: None)


def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(SpoolFull, match="spool_bytes_max"):
        SpoolCapacity(10, 100, "wait").reserve(1, 101, lambda _error: None)


def test_what_was_recovered_may_exceed_the_bound() -> None:
    capacity = SpoolCapacity(1, 100, "wait")
    capacity.occupy(3, 30)
    entered: list[Exception | None] = []
    capacity.reserve(1, 1, entered.append)
    capacity.release(2, 20)
    assert not entered
    capacity.release(1, 10)
    assert entered == [None]


def test_who_waits_at_the_end_is_results() -> None:
    capacity = SpoolCapacity(1, 100, "wait")
    capacity.occupy(1, 1)
    results: list[Exception | None] = []
    capacity.reserve(1, 1, results.append)
    capacity.close()
    assert isinstance(results[0], DispatchError)
    with pytest.raises(DispatchError, match="has stopped"):
        capacity.reserve(1, 1, results.append)


def test_what_to_do_when_full_must_be_known() -> None:
    with pytest.raises(ValueError, match="wait, refuse"):
        SpoolCapacity(1, 1, "explode")
