"""Ratios, targets and medians of the benchmark's figures."""

from __future__ import annotations

from benchmarks.figures import FIGURES, LOADS, PARTS, Figure, Row, Target, compare, doubts

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
    first, second = FIGURES[0].name, FIGURES[1].name
    rows = compare({second: [9.0, 1.0, 2.0], first: [5.0]}, {first: [1.0, 3.0]})
    assert [row.figure.name for row in rows] == [first, second]
    assert (rows[0].own, rows[0].peer) == (5.0, 2.0)
    assert (rows[1].own, rows[1].peer) == (2.0, None)


def test_names_of_figures_and_parts_are_unique() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(names) == len(set(names))
    assert len(PARTS) == len(set(PARTS))
    assert all(load.figures for load in LOADS)


def test_rows_of_kafka_that_should_agree_and_do_not_are_named() -> None:
    alike = {"produce-single-cpu": [50.0], "produce-single-all-cpu": [45.0]}
    assert doubts(alike) == []
    assert doubts({"produce-single-cpu": [133.0]}) == []
    (doubt,) = doubts({"produce-single-cpu": [133.0], "produce-single-all-cpu": [45.0]})
    assert "2.96 times" in doubt
    assert len(doubts({"produce-1mb-cpu": [1.0], "produce-1mb-all-cpu": [2.0]})) == 1
