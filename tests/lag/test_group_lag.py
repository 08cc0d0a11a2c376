"""How far a group is behind, by its committed offset and what the partition holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lag.group_lag import (
    Bounds,
    GroupLag,
    PartitionLag,
    Standing,
    Verdict,
    judge,
)

BOUNDS = Bounds(start=10, stable=15, end=20)


@pytest.mark.parametrize(
    ("committed", "verdict"),
    [
        (None, Verdict(Standing.NO_COMMIT, held=5)),
        (3, Verdict(Standing.EXPIRED, 10, 5, lost=7, held=5)),
        (10, Verdict(Standing.OK, 10, 5, held=5)),
        (15, Verdict(Standing.OK, 15, 0, held=5)),
        (16, Verdict(Standing.OK, 16, 4)),
        (20, Verdict(Standing.OK, 20, 0)),
        (21, Verdict(Standing.BEYOND)),
    ],
)
def test_a_place_is_judged_by_the_last_stable_offset(
    committed: int | None, verdict: Verdict
) -> None:
    assert judge(committed, BOUNDS) == verdict


def test_a_partition_that_is_gone_has_no_lag() -> None:
    assert judge(5, None) == Verdict(Standing.DELETED)


@given(
    st.tuples(*[st.integers(0, 1000)] * 3).map(sorted).map(lambda it: Bounds(*it)),
    st.integers(0, 1200),
)
def test_what_is_read_lost_left_and_held_adds_up(bounds: Bounds, committed: int) -> None:
    verdict = judge(committed, bounds)
    if committed > bounds.end:
        assert (verdict.standing, verdict.lag) == (Standing.BEYOND, None)
        return
    assert verdict.lag is not None
    assert verdict.next_offset is not None
    assert verdict.lag >= 0
    assert verdict.held >= 0
    assert verdict.next_offset + verdict.lag + verdict.held == bounds.end
    assert verdict.next_offset - verdict.lost == committed
    assert (verdict.standing is Standing.EXPIRED) == (committed < bounds.start)


def test_a_group_is_as_late_as_its_latest_partition() -> None:
    rows = (
        PartitionLag(topic="t", partition=0, standing=Standing.OK, lag=5, behind_ms=100),
        PartitionLag(topic="t", partition=1, standing=Standing.OK, lag=2, behind_ms=900),
        PartitionLag(topic="t", partition=2, standing=Standing.AWAY),
    )
    group = GroupLag(group="g", partitions=rows)
    assert (group.lag, group.behind_ms, group.worst) == (7, 900, rows[1])
    nothing = GroupLag(group="g", partitions=rows[2:])
    assert (nothing.lag, nothing.behind_ms, nothing.worst) == (None, None, None)
