"""When and how fast a pipeline runs: hours, rates, pauses."""

from __future__ import annotations

import pytest

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.pacing import (
    DAY_MINUTES,
    RECORDS_PER_BATCH,
    Backoff,
    Window,
    rate_interval_s,
    records_per_batch,
    records_per_trigger,
    trigger_seconds,
)


def test_a_window_is_open_from_its_first_minute_to_its_last() -> None:
    window = Window.parse("01:00-05:00")
    assert window.wait_minutes(60) == 0
    assert window.wait_minutes(299.9) == 0
    assert window.wait_minutes(300) == 20 * 60
    assert window.wait_minutes(0) == 60


def test_a_window_may_cross_midnight() -> None:
    window = Window.parse("22:30-1:15")
    assert [window.wait_minutes(minute) for minute in (1350, 1439, 0, 74.9)] == [0, 0, 0, 0]
    assert window.wait_minutes(75) == 1350 - 75


def test_a_window_to_midnight_ends_with_the_day() -> None:
    window = Window.parse("23:00-24:00")
    assert [window.wait_minutes(minute) for minute in (1380, 1439.9, 0)] == [0, 0, 1380]


def test_waiting_leads_to_an_open_window_at_every_minute() -> None:
    for text in ("01:00-05:00", "23:59-00:01", "00:00-23:59"):
        window = Window.parse(text)
        for minute in range(DAY_MINUTES):
            opened = (minute + window.wait_minutes(minute)) % DAY_MINUTES
            assert window.wait_minutes(opened) == 0


@pytest.mark.parametrize(
    "text", ["", "1-5", "01:00", "25:00-26:00", "01:60-02:00", "01:00-01:00", "00:00-24:00", "x"]
)
def test_an_invalid_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PipelineError, match="01:00-05:00"):
        Window.parse(text)


def test_a_rate_is_a_number_of_records_for_each_batch() -> None:
    assert records_per_trigger(50_000, 2.0) == 100_000
    assert records_per_trigger(0.1, 1.0) == 1
    with pytest.raises(PipelineError):
        rate_interval_s(0, 1.0)


def test_a_rate_below_one_record_for_each_batch_makes_batches_rarer() -> None:
    assert rate_interval_s(50_000, 2.0) == 2.0
    assert rate_interval_s(0.1, 1.0) == 10.0
    for rate in (0.1, 0.3, 1.0, 7.0):
        interval_s = rate_interval_s(rate, 1.0)
        assert records_per_trigger(rate, interval_s) <= rate * interval_s + 1e-9


def test_a_batch_has_an_end_and_holds_what_comes_until_the_next() -> None:
    assert records_per_batch(1.0) == RECORDS_PER_BATCH
    assert records_per_batch(60.0) == 6 * RECORDS_PER_BATCH


def test_pauses_grow_to_their_limit_and_start_over_after_a_success() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.failed() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.succeeded()
    assert backoff.failed() == 1


def test_times_from_batch_to_batch() -> None:
    assert trigger_seconds("10 seconds") == 10
    assert trigger_seconds("1 minute") == 60
    assert trigger_seconds("500 milliseconds") == 0.5
    with pytest.raises(PipelineError):
        trigger_seconds("soon")
