"""Durations and times as people write them."""

from __future__ import annotations

import pytest

from headrace.cli.common.durations import parse_duration_ms, show_duration
from headrace.cli.common.errors import CliError
from headrace.client.times import parse_time_ms, show_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), ("90ms", 90), ("15m", 900_000), ("1h30m", 5_400_000), ("1w2d", 777_600_000)],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert parse_duration_ms(text, "--for") == ms


@pytest.mark.parametrize("text", ["", "15", "m", "-15m", "1.5h", "15 m", "1y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CliError, match=r"--for .* is not a duration"):
        parse_duration_ms(text, "--for")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (90, "90ms"), (61_500, "1m1s"), (7_200_000, "2h"), (864_000_001, "1w3d")],
)
def test_durations_are_shown_in_two_units(ms: int, text: str) -> None:
    assert show_duration(ms) == text


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time_ms("1970-01-02") == 86_400_000
    assert parse_time_ms("1970-01-01T00:00:01.5") == 1500
    assert parse_time_ms("1970-01-01T01:00+01:00") == 0
    assert parse_time_ms("yesterday") is None
    assert show_time(1500) == "1970-01-01T00:00:01.500Z"
