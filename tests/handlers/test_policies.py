"""What follows a failure, by policy, error and number of attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MissingId, UndecodablePayload
from headrace.handlers.policies import (
    Again,
    Backoff,
    DeadLetter,
    Park,
    Resend,
    Retry,
    SendAgain,
    Step,
    next_step,
)

ERROR = RuntimeError("no")


def steps(retry: Retry | None, count: int, error: BaseException = ERROR) -> list[Step]:
    return [next_step(retry, error, attempt, 0.0) for attempt in range(1, count + 1)]


def test_without_a_policy_the_first_failure_is_a_dead_letter() -> None:
    assert steps(None, 1) == steps(Retry(), 1) == [DeadLetter()]


def test_tries_in_place_come_first_and_twice_as_late_each_time() -> None:
    assert steps(Retry(in_place=3, delay="100ms"), 4) == [
        Again(100),
        Again(200),
        Again(400),
        DeadLetter(),
    ]


def test_the_retry_table_follows_with_delays_up_to_the_most() -> None:
    retry = Retry(in_place=1, delay=5, then=Backoff("1s", "3s", attempts=4))
    assert steps(retry, 6) == [
        Again(5),
        Park(1000),
        Park(2000),
        Park(3000),
        Park(3000),
        DeadLetter(),
    ]


def test_a_re_sent_message_is_tried_in_place_on_each_arrival() -> None:
    retry = Retry(in_place=1, delay=5, then=Resend(attempts=2))
    assert steps(retry, 6) == [
        Again(5),
        SendAgain(),
        Again(5),
        SendAgain(),
        Again(5),
        DeadLetter(),
    ]


@pytest.mark.parametrize("error", [UndecodablePayload("no"), MissingId("no"), KeyError("no")])
def test_what_no_try_can_help_is_a_dead_letter_at_once(error: Exception) -> None:
    retry = Retry(in_place=3, then=Backoff(), never=(LookupError,))
    assert steps(retry, 1, error) == [DeadLetter()]


def test_an_error_of_always_is_tried_without_end() -> None:
    parked = Retry(then=Backoff("1s", "2s", attempts=1), always=(ConnectionError,))
    assert steps(parked, 4, ConnectionResetError()) == [Park(1000), *[Park(2000)] * 3]
    in_place = Retry(delay="20s", always=(ConnectionError,))
    assert steps(in_place, 3, ConnectionResetError()) == [Again(20_000), *[Again(30_000)] * 2]
    resent = Retry(then=Resend(1), always=(ConnectionError,))
    assert steps(resent, 3, ConnectionResetError()) == [SendAgain()] * 3


def test_the_class_nearest_to_the_error_decides() -> None:
    retry = Retry(
        in_place=1,
        never=(OSError,),
        always=(ConnectionError,),
        rules={BrokenPipeError: Retry(in_place=2, delay=7)},
    )
    assert steps(retry, 1, PermissionError()) == [DeadLetter()]
    assert isinstance(next_step(retry, ConnectionResetError(), 99, 0.0), Again)
    assert steps(retry, 3, BrokenPipeError()) == [Again(7), Again(14), DeadLetter()]


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True), st.integers(1, 1000))
def test_chance_only_makes_a_delay_longer_and_by_no_more_than_the_jitter(
    jitter: float, chance: float, attempt: int
) -> None:
    retry = Retry(jitter=jitter, then=Backoff("1s", "1h", attempts=1000))
    plain = next_step(retry, ERROR, attempt, 0.0)
    step = next_step(retry, ERROR, attempt, chance)
    assert isinstance(plain, Park)
    assert isinstance(step, Park)
    assert plain.delay_ms <= step.delay_ms <= round(plain.delay_ms * (1 + jitter))


@given(st.integers(0, 5), st.integers(1, 20))
def test_every_policy_with_an_end_comes_to_it_after_its_attempts(in_place: int, more: int) -> None:
    parked = Retry(in_place=in_place, then=Backoff("1ms", "1s", attempts=more))
    assert steps(parked, in_place + more + 1).index(DeadLetter()) == in_place + more
    resent = Retry(in_place=in_place, then=Resend(more))
    tries = (in_place + 1) * (more + 1)
    assert steps(resent, tries).index(DeadLetter()) == tries - 1


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than most"):
        Backoff("1h", "1m")
    with pytest.raises(ValueError, match="Backoff: attempts=0 must be 1 or more"):
        Backoff(attempts=0)
    with pytest.raises(ValueError, match="Resend: attempts=0 must be 1 or more"):
        Resend(0)
    with pytest.raises(ValueError, match="in_place=-1 must be 0 or more"):
        Retry(in_place=-1)
    with pytest.raises(ValueError, match="fraction"):
        Retry(jitter=2)
    with pytest.raises(ValueError, match="not a duration"):
        Retry(delay="soon")


def test_a_policy_names_every_stage_that_an_error_may_come_to() -> None:
    backoff, resend = Backoff(), Resend()
    assert Retry(then=backoff, rules={OSError: Retry(then=resend)}).stages == (backoff, resend)
    assert Retry(in_place=3).stages == ()
