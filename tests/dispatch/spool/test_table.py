"""A spool in a database: survivors take over what a dead node has left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.port import (
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    SpoolContents,
)
from headrace.dispatch.spool.table import TableSpool

ADOPT_AFTER_MS = 10_000

OpenSpool = Callable[..., tuple[TableSpool, SpoolContents]]


class Time:
    ms = 1_000_000


@pytest.fixture
def time_() -> Time:
    return Time()


@pytest.fixture
def open_spool(store_url: str, time_: Time) -> Iterator[OpenSpool]:
    with ExitStack() as stack:

        def make(node: str | None = None, topic: str = "jobs") -> tuple[TableSpool, SpoolContents]:
            spool = TableSpool(
                store_url,
                topic,
                node=node,
                adopt_after_ms=ADOPT_AFTER_MS,
                now_ms=lambda: time_.ms,
            )
            entries = spool.recover()
            stack.callback(spool.close)
            return spool, entries

        yield make


def test_a_node_of_the_same_name_finds_its_jobs_at_once(open_spool: OpenSpool) -> None:
    spool, _ = open_spool("one")
    spool.write([JobPut("a", b"first", 1), JobPut("b", b"second", 2), JobSent("a", 3, 17)])
    spool.write(
        [
            JobDone("b"),
            JobPut("c", b"third", 3),
            JobSent("c", 0, 1),
            JobReturned("c"),
            DoneRead(0, 5),
        ]
    )
    _, entries = open_spool("one")
    assert list(entries.jobs) == ["a", "c"]
    assert (entries.jobs["a"].value, entries.jobs["a"].sent) == (b"first", (3, 17))
    assert entries.jobs["c"].sent is None
    assert entries.read == {0: 5}


def test_a_silent_node_is_adopted_from_after_a_while_and_once(
    open_spool: OpenSpool, time_: Time
) -> None:
    dead, _ = open_spool()
    dead.write([JobPut("a", b"1", 1), JobPut("b", b"2", 2), JobSent("b", 4, 9), DoneRead(0, 50)])
    left, _ = open_spool()
    right, _ = open_spool()
    left.write([JobPut("own", b"3", 3), DoneRead(0, 70)])
    time_.ms += ADOPT_AFTER_MS // 2
    assert left.beat(time_.ms).adopted is None
    assert right.beat(time_.ms).adopted is None
    time_.ms += ADOPT_AFTER_MS
    # A node that beats is alive.
    taken = [spool.beat(time_.ms).adopted for spool in (left, right)]
    assert taken[1] is None
    assert taken[0] is not None
    assert {id: entry.sent for id, entry in taken[0].jobs.items()} == {"a": None, "b": (4, 9)}
    assert taken[0].read == {0: 50}


def test_who_adopted_and_dies_is_adopted_from_in_turn(open_spool: OpenSpool, time_: Time) -> None:
    first, _ = open_spool()
    first.write([JobPut("a", b"1", 1), DoneRead(0, 50)])
    second, _ = open_spool()
    second.write([DoneRead(0, 70)])
    time_.ms += ADOPT_AFTER_MS + 1
    assert second.beat(time_.ms).adopted is not None
    third, _ = open_spool()
    time_.ms += ADOPT_AFTER_MS + 1
    adopted = third.beat(time_.ms).adopted
    assert adopted is not None
    assert list(adopted.jobs) == ["a"]
    assert adopted.read == {0: 50}


def test_a_node_that_ends_hands_its_jobs_over_at_once(open_spool: OpenSpool, time_: Time) -> None:
    ending, _ = open_spool()
    ending.write([JobPut("a", b"1", 1)])
    survivor, _ = open_spool()
    ending.close()
    adopted = survivor.beat(time_.ms).adopted
    assert adopted is not None
    assert list(adopted.jobs) == ["a"]


def test_a_node_taken_for_dead_learns_what_is_left_to_it(
    open_spool: OpenSpool, time_: Time
) -> None:
    stopped, _ = open_spool()
    stopped.write([JobPut("a", b"1", 1)])
    time_.ms += ADOPT_AFTER_MS + 1
    survivor, _ = open_spool()
    assert survivor.beat(time_.ms).adopted is not None
    stopped.write([JobPut("b", b"2", 2)])
    beat = stopped.beat(time_.ms)
    assert beat.kept == frozenset({"b"})
    assert stopped.beat(time_.ms + ADOPT_AFTER_MS // 2).kept is None


def test_changes_of_one_batch_are_made_in_their_order(open_spool: OpenSpool) -> None:
    spool, _ = open_spool("one")
    spool.write([JobPut("again", b"first", 1), JobPut("gone", b"x", 1), JobPut("sent", b"y", 1)])
    spool.write(
        [
            JobDone("again"),
            JobPut("again", b"second", 2),
            JobPut("brief", b"z", 2),
            JobDone("brief"),
        ]
    )
    spool.write(
        [JobDone("gone"), JobSent("sent", 1, 1), JobReturned("sent"), JobSent("sent", 2, 2)]
    )
    _, entries = open_spool("one")
    assert {id: (entry.value, entry.sent) for id, entry in entries.jobs.items()} == {
        "sent": (b"y", (2, 2)),
        "again": (b"second", None),
    }


def test_topics_do_not_mix(open_spool: OpenSpool, time_: Time) -> None:
    jobs, _ = open_spool("one")
    jobs.write([JobPut("a", b"1", 1)])
    _, entries = open_spool("one", "other")
    assert not entries.jobs


def test_a_database_that_is_away_is_a_clear_error() -> None:
    spool = TableSpool("sqlite:////nowhere/at/all.db", "jobs", adopt_after_ms=1, now_ms=lambda: 0)
    with pytest.raises(SpoolBroken, match="folder exist"):
        spool.recover()
