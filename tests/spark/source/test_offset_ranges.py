"""Ranges of offsets: what a trigger takes, what is lost, and how tasks share it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark.source.offset_ranges import (
    OffsetRange,
    admit,
    partitions_without_start,
    plan,
    records_between,
    split,
)

partitions = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
offsets = st.dictionaries(partitions, st.integers(0, 10_000))
ranges = st.dictionaries(partitions, st.tuples(st.integers(0, 5000), st.integers(0, 5000))).map(
    lambda found: [OffsetRange(*tp, start, start + size) for tp, (start, size) in found.items()]
)


@settings(deadline=None)
@given(ranges, st.integers(1, 3000), st.none() | st.integers(1, 40))
def test_tasks_cover_every_offset_once(
    whole: list[OffsetRange], records_max: int, tasks_min: int | None
) -> None:
    tasks = split(whole, records_max, tasks_min)
    assert all(0 < task.size <= records_max for task in tasks)
    wanted = {(it.topic, it.partition, n) for it in whole for n in range(it.start, it.end)}
    found = [(it.topic, it.partition, n) for it in tasks for n in range(it.start, it.end)]
    assert len(found) == len(wanted)
    assert set(found) == wanted
    if tasks_min is not None and sum(it.size for it in whole) >= tasks_min:
        assert len(tasks) >= tasks_min


def test_one_large_partition_is_shared_among_tasks() -> None:
    tasks = split([OffsetRange("a", 0, 0, 11_000_000)], 1_000_000)
    assert len(tasks) == 11
    assert max(task.size for task in tasks) == 1_000_000


def test_the_split_of_a_range_is_always_the_same() -> None:
    whole = [OffsetRange("a", 0, 5, 1000), OffsetRange("b", 1, 0, 7)]
    # Literally: another cut of a micro-batch that is run again would lose and double rows.
    assert [(it.topic, it.start, it.end) for it in split(whole, 300, 5)] == [
        ("a", 5, 253), ("a", 253, 502), ("a", 502, 751), ("a", 751, 1000), ("b", 0, 7),
    ]  # fmt: skip


@settings(deadline=None)
@given(offsets, offsets, st.integers(1, 5000))
def test_a_trigger_takes_about_its_limit_and_gets_on(
    start: dict[tuple[str, int], int], more: dict[tuple[str, int], int], most: int
) -> None:
    begin = {tp: start.get(tp, 0) for tp in more}
    latest = {tp: begin[tp] + size for tp, size in more.items()}
    end = admit(begin, latest, most)
    assert end.keys() == latest.keys()
    assert all(begin[tp] <= end[tp] <= latest[tp] for tp in latest)
    waiting = [tp for tp in latest if latest[tp] > begin[tp]]
    assert records_between(begin, end) <= most + len(waiting)
    assert all(end[tp] > begin[tp] for tp in waiting)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(1, 5000))
def test_a_backlog_takes_no_more_triggers_than_it_has_to(sizes: list[int], most: int) -> None:
    latest = {("a", number): size for number, size in enumerate(sizes)}
    tp, triggers = dict.fromkeys(latest, 0), 0
    while tp != latest:
        end = admit(tp, latest, most)
        waiting = sum(latest[at] > tp[at] for at in latest)
        assert records_between(tp, end) <= max(most, most + waiting - 1)
        tp, triggers = end, triggers + 1
    assert triggers <= -(-sum(sizes) // most)


def test_a_limit_is_kept_where_all_get_on() -> None:
    latest = {("a", number): 101 for number in range(99)}
    assert records_between(dict.fromkeys(latest, 0), admit({}, latest, 100)) == 100


def test_shares_are_by_what_waits() -> None:
    begin = {("a", 0): 0, ("a", 1): 100, ("a", 2): 50}
    latest = {("a", 0): 900, ("a", 1): 200, ("a", 2): 50}
    assert admit(begin, latest, 100) == {("a", 0): 90, ("a", 1): 110, ("a", 2): 50}
    assert admit(begin, latest, 1000) == latest


def test_a_new_partition_is_read_from_its_beginning() -> None:
    start, end = {("a", 0): 5}, {("a", 0): 9, ("a", 1): 4}
    assert partitions_without_start(start, end) == {("a", 1)}
    assert plan(start, end, {("a", 1): 0}) == (
        [OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 0, 4)],
        [],
    )


def test_a_new_partition_that_lost_its_beginning_is_a_loss() -> None:
    found = plan({}, {("a", 1): 4}, {("a", 1): 3})
    assert found.ranges == [OffsetRange("a", 1, 3, 4)]
    assert "a/1 begins at 3" in found.losses[0]


def test_a_partition_that_is_gone_is_a_loss() -> None:
    found = plan({("a", 0): 5}, {}, {})
    assert found == ([], ["a/0 is gone"])


def test_a_topic_that_was_made_anew_is_a_loss_and_read_from_its_beginning() -> None:
    start, end = {("a", 0): 50}, {("a", 0): 9}
    assert partitions_without_start(start, end) == {("a", 0)}
    found = plan(start, end, {("a", 0): 2})
    assert found.ranges == [OffsetRange("a", 0, 2, 9)]
    assert "went back from 50 to 9" in found.losses[0]
