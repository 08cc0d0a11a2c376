"""The bound of the local queue: first come, first served, or refused."""

from __future__ import annotations

import pytest

from headrace.dispatch.errors import DispatchError, SpoolFull
from headrace.dispatch.room import Room


def test_who_does_not_fit_waits_in_order() -> None:
    room = Room(2, 100, "wait")
    seen: list[str] = []
    for name, items in (("a", 1), ("b", 2), ("c", 1)):
        room.enter(items, 10, lambda _error, name=name: seen.append(name))  # type: ignore[misc]
    # The third would fit, but the second came before it.
    assert (seen, room.waiting) == (["a"], 2)
    room.leave(1, 10)
    assert (seen, room.items) == (["a", "b"], 2)
    room.leave(2, 10)
    assert (seen, room.items, room.bytes) == (["a", "b", "c"], 1, 10)


def test_bytes_are_bounded_too() -> None:
    room = Room(10, 100, "refuse")
    room.enter(1, 90, lambda _error: None)
    with pytest.raises(SpoolFull, match="90 bytes"):
        room.enter(1, 11, lambda _error: None)
    room.enter(1, 10, lambda _error: None)


def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(SpoolFull, match="spool_bytes_max"):
        Room(10, 100, "wait").enter(1, 101, lambda _error: None)


def test_what_was_recovered_may_exceed_the_bound() -> None:
    room = Room(1, 100, "wait")
    room.occupy(3, 30)
    entered: list[Exception | None] = []
    room.enter(1, 1, entered.append)
    room.leave(2, 20)
    assert not entered
    room.leave(1, 10)
    assert entered == [None]


def test_who_waits_at_the_end_is_told() -> None:
    room = Room(1, 100, "wait")
    room.occupy(1, 1)
    told: list[Exception | None] = []
    room.enter(1, 1, told.append)
    room.close()
    assert isinstance(told[0], DispatchError)
    with pytest.raises(DispatchError, match="has stopped"):
        room.enter(1, 1, told.append)


def test_what_to_do_when_full_must_be_known() -> None:
    with pytest.raises(ValueError, match="wait, refuse"):
        Room(1, 1, "explode")
