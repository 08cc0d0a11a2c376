"""Ratios, targets and medians of the benchmark's figures."""

from __future__ import annotations

import pytest
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Load, Row, Target, compare, doubts

from benchmarks import broker, groups

RATE = Figure("rate", "a rate", "MB/s", "higher", Target(1.5))
COST = Figure("cost", "a cost", "ms", "lower", Target(0.5))
OWN = Figure("own", "a limit of its own", "MB", "lower", Target(80, relative=False))


def test_a_higher_rate_reaches_its_target_at_the_limit() -> None:
    assert Row(RATE, own=150.0, peer=100.0).reached is True
    assert Row(RATE, own=149.0, peer=100.0).reached is False


def test_a_lower_cost_is_an_advantage_above_one() -> None:
    row = Row(COST, own=1.0, peer=4.0)
    assert row.ratio == 0.25
    assert row.advantage == 4.0
    assert row.reached is True


def test_a_limit_of_its_own_needs_no_peer() -> None:
    assert Row(OWN, own=79.0, peer=None).reached is True
    assert Row(OWN, own=81.0, peer=1000.0).reached is False


def test_a_ratio_without_a_peer_is_unknown() -> None:
    row = Row(RATE, own=150.0, peer=None)
    assert row.ratio is None
    assert row.advantage is None
    assert row.reached is None


def test_rows_are_medians_of_the_rounds_in_the_order_of_the_table() -> None:
    rows = compare([RATE, COST, OWN], {"cost": [9.0, 1.0, 2.0], "rate": [5.0]}, {"rate": [1.0, 3]})
    assert [row.figure for row in rows] == [RATE, COST]
    assert (rows[0].own, rows[0].peer) == (5.0, 2.0)
    assert (rows[1].own, rows[1].peer) == (2.0, None)


@pytest.mark.parametrize(
    ("bench", "loads"), [(broker.BENCH, broker.LOADS), (groups.BENCH, groups.LOADS)]
)
def test_names_of_figures_and_parts_are_unique(bench: Bench, loads: tuple[Load, ...]) -> None:
    names = [figure.name for figure in bench.figures]
    assert len(names) == len(set(names))
    assert len(bench.parts) == len(set(bench.parts))
    assert all(load.figures and load.name in bench.parts for load in loads)
    assert {name for pair in bench.controls for name in pair} <= set(names)


def test_rows_of_kafka_that_should_agree_and_do_not_are_named() -> None:
    alike = {"produce-single-cpu": [50.0], "produce-single-all-cpu": [45.0]}
    controls = broker.BENCH.controls
    assert doubts(alike, controls) == []
    assert doubts({"produce-single-cpu": [133.0]}, controls) == []
    (doubt,) = doubts({"produce-single-cpu": [133.0], "produce-single-all-cpu": [45.0]}, controls)
    assert "2.96 times" in doubt
    assert len(doubts({"produce-1mb-cpu": [1.0], "produce-1mb-all-cpu": [2.0]}, controls)) == 1
