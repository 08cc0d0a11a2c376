"""The forms of --offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.records.positions import Positions, parse_positions, resolve


@dataclass
class FakeConsumer:
    """Partition 0 holds offsets 10 to 19, one a second from time 1000 ms on."""

    low: int = 10
    high: int = 20

    def get_watermark_offsets(self, _partition: Any, timeout: float) -> tuple[int, int]:
        return self.low, self.high

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        for partition in asked:
            at = self.low + max(0, -(-(partition.offset - 1000) // 1000))
            partition.offset = at if at < self.high else -1
        return asked


@pytest.mark.parametrize(
    ("texts", "start"),
    [
        ([], 10),
        (["beginning"], 10),
        (["end"], 20),
        (["12"], 12),
        (["0"], 0),
        (["-3"], 17),
        (["-300"], 10),
        (["s@3000"], 12),
        (["s@999999"], 20),
    ],
)
def test_a_start_is_resolved_against_the_partition(texts: list[str], start: int) -> None:
    starts, ends = resolve(FakeConsumer(), [("t", 0)], parse_positions(texts))
    assert starts == {("t", 0): start}
    assert ends == {}


def test_an_end_time_ends_before_the_first_record_of_that_time() -> None:
    positions = parse_positions(["s@2000", "e@5000"])
    assert positions == Positions("beginning", 2000, 5000)
    starts, ends = resolve(FakeConsumer(), [("t", 0)], positions)
    assert (starts["t", 0], ends["t", 0]) == (11, 14)


def test_an_end_time_in_the_future_ends_at_the_end_of_today() -> None:
    _, ends = resolve(FakeConsumer(), [("t", 0)], parse_positions(["e@999999"]))
    assert ends == {("t", 0): 20}


@pytest.mark.parametrize("text", ["middle", "s@", "e@x", "--1", "1.5", ""])
def test_what_is_no_position_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(CliError, match="is not a position") as caught:
        parse_positions([text])
    assert "s@MS" in caught.value.hint
