"""The dispatcher's checker finds each anomaly in a history made by hand, and none in a good one."""

from __future__ import annotations

from tests.faults.dispatch_checker import DispatchChecker, DispatchEvent


def run(
    id: str, start: int, end: int, fence: str, *, life: int = 1, partition: int = 0
) -> list[DispatchEvent]:
    return [
        DispatchEvent("start", start, life, id, partition, fence),
        DispatchEvent("end", end, life, id, partition, fence),
    ]


def ended(*ids: str) -> list[DispatchEvent]:
    return [
        event
        for id in ids
        for event in (
            DispatchEvent("submitted", id=id),
            DispatchEvent("outcome", 99, id=id, state="done"),
        )
    ]


def names(events: list[DispatchEvent]) -> list[str]:
    return [anomaly.name for anomaly in DispatchChecker(events).anomalies()]


def test_a_good_history_has_no_anomaly() -> None:
    events = ended("a", "b", "c") + run("a", 1, 2, "1.0") + run("b", 2, 3, "1.1")
    events += run("c", 1, 9, "1.0", partition=1)
    assert names(events) == []


def test_an_item_without_an_outcome_is_lost() -> None:
    refused = DispatchEvent("outcome", 5, id="a", state="refused")
    assert names([DispatchEvent("submitted", id="a"), *run("a", 1, 2, "1.0")]) == ["item-lost"]
    assert names([DispatchEvent("submitted", id="a"), refused]) == ["item-lost"]


def test_an_item_that_is_finished_must_have_run() -> None:
    assert names(ended("a")) == ["item-lost"]


def test_two_items_at_once_on_a_partition_are_a_double_grant() -> None:
    events = ended("a", "b") + run("a", 1, 5, "1.0") + run("b", 4, 6, "2.0", life=2)
    assert names(events) == ["token-double-grant"]


def test_two_items_with_one_fence_are_a_double_grant_at_any_time() -> None:
    events = ended("a", "b") + run("a", 1, 2, "1.0") + run("b", 4, 6, "1.0")
    assert names(events) == ["token-double-grant"]


def test_what_a_dead_process_ran_has_ended() -> None:
    events = ended("a", "b") + run("b", 10, 11, "2.0", life=2) + run("a", 12, 13, "2.1", life=2)
    events += [DispatchEvent("start", 1, 1, "a", 0, "1.0"), DispatchEvent("died", 5, 1)]
    checker = DispatchChecker(events)
    assert checker.anomalies() == []
    assert checker.repeats == 1


def test_an_item_that_never_ended_overlaps_whatever_follows() -> None:
    events = ended("a", "b") + run("b", 10, 11, "2.0", life=2)
    events.append(DispatchEvent("start", 1, 1, "a", 0, "1.0"))
    assert names(events) == ["token-double-grant"]


def test_the_same_item_may_run_twice_and_is_counted() -> None:
    events = ended("a") + run("a", 1, 5, "1.0") + run("a", 3, 6, "2.0", life=2)
    checker = DispatchChecker(events)
    assert checker.anomalies() == []
    assert checker.repeats == 1
