"""Records that may come again after a crash are known until they cannot come any more."""

from __future__ import annotations

from headrace.handlers.parked_lanes import FAR_MESSAGES, NEAR_MESSAGES, Repeats


def test_a_record_that_was_put_away_is_known_when_it_comes_again() -> None:
    repeats = Repeats()
    assert not repeats
    repeats.add("orders", 0, [5, 7])
    assert repeats
    assert [repeats.has(("orders", 0), offset) for offset in range(4, 9)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not repeats.has(("orders", 1), 5)


def test_what_has_come_again_is_forgotten() -> None:
    repeats = Repeats()
    repeats.add("orders", 0, [5, 7])
    for offset in (5, 6, 7):
        assert repeats
        repeats.done(("orders", 0), offset)
    assert not repeats
    repeats.done(("orders", 0), 8)


def test_what_lies_far_below_the_first_to_come_is_forgotten_at_once() -> None:
    repeats = Repeats()
    repeats.add("orders", 0, [5, NEAR_MESSAGES])
    assert not repeats.has(("orders", 0), NEAR_MESSAGES + 5)
    assert repeats
    repeats.add("orders", 1, [5])
    assert not repeats.has(("orders", 1), NEAR_MESSAGES + 5)
    repeats.forget(("orders", 0))
    assert not repeats


def test_all_is_forgotten_once_the_others_are_far_above() -> None:
    repeats = Repeats()
    repeats.add("orders", 0, [5])
    assert not repeats.has(("orders", 0), 1)
    assert not repeats.has(("orders", 0), FAR_MESSAGES + 5)
    assert repeats.has(("orders", 0), 5)
    assert not repeats.has(("orders", 0), FAR_MESSAGES + 6)
    assert not repeats


def test_a_new_assignment_starts_over() -> None:
    repeats = Repeats()
    repeats.add("orders", 0, [5])
    assert not repeats.has(("orders", 0), 90_000)
    assert not repeats
    repeats.add("orders", 0, [5])
    assert repeats.has(("orders", 0), 5)
