"""Looks become notices: once at each change, again when asked to, and never lost by a take-over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.lag.group_lag import GroupLag, PartitionLag, Standing
from headrace.lag.levels import Level, LevelPolicy, Threshold
from headrace.lag.rules import LagConfig, Rule
from headrace.lag.watch_machine import LagWatch, StoredLevel

POLICY = LevelPolicy(
    warning=Threshold(records=10),
    critical=Threshold(records=100),
    rise_after_ms=0,
    fall_after_ms=0,
    clear=1.0,
)
CONFIG = LagConfig(rules=(Rule(groups=("shop*",), levels=POLICY, notify=("ops",)),))


def lag(group: str, records: int) -> GroupLag:
    row = PartitionLag(
        topic="orders", partition=0, standing=Standing.OK, lag=records, behind_ms=1000
    )
    return GroupLag(group=group, state="Stable", partitions=(row,))


def look(watch: LagWatch, at_ms: int, **records: int) -> list[tuple[str, str, str]]:
    """Take a look and tell whatever it says; group, old and new level of each."""
    said = []
    for change in watch.update([lag(name, count) for name, count in records.items()], at_ms, at_ms):
        assert change.notify == ("ops",)
        said.append((change.notice.group, change.notice.was.word, change.notice.level.word))
        watch.sent(change.notice)
    return said


def test_a_change_is_said_once() -> None:
    watch = LagWatch(CONFIG, {}, 0)
    assert look(watch, 0, shop=5) == []
    assert look(watch, 1, shop=50) == [("shop", "ok", "warning")]
    assert look(watch, 2, shop=60) == []
    assert look(watch, 3, shop=600) == [("shop", "warning", "critical")]
    assert look(watch, 4, shop=0) == [("shop", "critical", "ok")]
    assert watch.levels == {}


def test_a_group_without_a_rule_is_never_spoken_of() -> None:
    assert look(LagWatch(CONFIG, {}, 0), 0, other=1000) == []


def test_a_group_whose_coordinator_is_away_keeps_its_level() -> None:
    watch = LagWatch(CONFIG, {}, 0)
    look(watch, 0, shop=50)
    assert watch.update([], 1, 1, {"shop"}) == []
    assert watch.levels["shop"].level is Level.WARNING
    assert look(watch, 2) == [("shop", "warning", "ok")]


def test_a_group_that_goes_away_is_well_again() -> None:
    watch = LagWatch(CONFIG, {}, 0)
    look(watch, 0, shop=50)
    assert look(watch, 1) == [("shop", "warning", "ok")]
    assert look(watch, 2) == []


def test_it_is_said_again_when_asked_to() -> None:
    rule = Rule(levels=POLICY, repeat_ms=1000, notify=("ops",))
    watch = LagWatch(LagConfig(rules=(rule,)), {}, 0)
    assert look(watch, 0, shop=50) == [("shop", "ok", "warning")]
    assert look(watch, 999, shop=50) == []
    assert look(watch, 1000, shop=50) == [("shop", "warning", "warning")]
    assert watch.levels["shop"].since_ms == 0
    assert look(watch, 1500, shop=50) == []
    assert look(watch, 2000, shop=50) == [("shop", "warning", "warning")]


def test_a_successor_says_what_may_not_have_been_told() -> None:
    known = {
        "shop": StoredLevel(level=Level.CRITICAL, was=Level.OK, since_ms=5, is_notified=False),
        "shop-2": StoredLevel(level=Level.WARNING, was=Level.OK, since_ms=6),
        "shop-3": StoredLevel(level=Level.OK, was=Level.WARNING, since_ms=7, is_notified=False),
    }
    watch = LagWatch(CONFIG, known, 0)
    untold = watch.unsent(10)
    assert [(it.notice.group, it.notice.level, it.notify) for it in untold] == [
        ("shop", Level.CRITICAL, ("ops",)),
        ("shop-3", Level.OK, ("ops",)),
    ]
    for change in untold:
        watched = watch.sent(change.notice)
        assert watched is not None
        assert watched.is_notified
    assert watch.unsent(11) == []
    # What has been told before is not said again as long as it stays so.
    assert watch.update([lag("shop", 200), lag("shop-2", 20)], 12, 12) == []


def test_old_news_is_not_written_down() -> None:
    watch = LagWatch(CONFIG, {}, 0)
    [first] = watch.update([lag("shop", 50)], 0, 0)
    [second] = watch.update([lag("shop", 500)], 1, 1)
    assert watch.sent(first.notice) is None
    assert watch.sent(second.notice) is not None
    assert watch.sent(second.notice) is None


def test_a_notice_has_the_worst_partitions_and_the_command() -> None:
    watch = LagWatch(CONFIG, {}, 0)
    [change] = watch.update([lag("shop", 50)], 1_700_000_000_123, 0)
    assert change.notice.document() == {
        "event": "lag",
        "text": "group shop is warning: 50 records, 1 s behind",
        "group": "shop",
        "level": "warning",
        "was": "ok",
        "records": 50,
        "behind_s": 1.0,
        "at": "2023-11-14T22:13:20.123Z",
        "state": "Stable",
        "members": None,
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "standing": "ok",
                "committed": None,
                "start": None,
                "end": None,
                "lag": 50,
                "behind_s": 1.0,
                "lost": 0,
                "held": 0,
                "member": None,
            }
        ],
        "explain": "headrace lag explain shop",
    }


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=40))
def test_every_change_is_sent_at_least_once_whatever_dies_when(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Crashes fall between writing down and telling, or between telling and writing that down."""
    stored_levels: dict[str, StoredLevel] = {}
    watch = LagWatch(CONFIG, {}, 0)
    told: list[Level] = []
    levels = [Level.OK]
    for now_ms, (records, dies_before, dies_after) in enumerate(steps):
        changes = watch.update([lag("shop", records)], now_ms, now_ms)
        levels += [change.stored.level for change in changes]
        stored_levels.update({change.notice.group: change.stored for change in changes})
        if dies_before:
            watch = LagWatch(CONFIG, stored_levels, now_ms)
            changes = watch.unsent(now_ms)
        told += [change.notice.level for change in changes]
        if dies_after:
            watch = LagWatch(CONFIG, stored_levels, now_ms)
            changes = watch.unsent(now_ms)
            told += [change.notice.level for change in changes]
        for change in changes:
            watched = watch.sent(change.notice)
            if watched is not None:
                stored_levels[change.notice.group] = watched
    # Without repeats, what was told is exactly how the level went.
    path = [level for index, level in enumerate(told) if index == 0 or told[index - 1] != level]
    assert path == levels[1:]
