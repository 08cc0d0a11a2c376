"""Durations as text, in milliseconds."""

from __future__ import annotations

import pytest

from headrace.timing.durations import duration_ms, is_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200ms", 200), ("15m", 900_000), ("1h30m", 5_400_000), ("1w", 604_800_000), (250, 250)],
)
def test_numbers_with_units_add_up(text: str | int, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "15", "1.5h", "-1s", "1 h", "soon", "1y"])
def test_other_text_is_refused_with_an_example(text: str) -> None:
    assert not is_duration(text)
    with pytest.raises(ValueError, match=r"is not a duration; write .* as in 1h30m"):
        duration_ms(text)
