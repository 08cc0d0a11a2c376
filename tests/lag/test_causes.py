"""Each cause is named by its evidence, and by nothing less; snapshots made by hand."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.app import command
from headrace.lag.causes import explain
from headrace.lag.causes.findings import Cause
from headrace.lag.group_lag import GroupLag, MemberView, PartitionLag, Standing
from headrace.lag.snapshot import (
    Failures,
    Flow,
    Inflow,
    Sample,
    Snapshot,
    compare,
)

TOPIC = "orders"


def snapshot(
    lags: list[int | None],
    members: list[set[int]],
    *,
    read: int = 100,
    written: int = 200,
    behind_ms: int = 60_000,
    **given: object,
) -> Snapshot:
    """A group that was watched for ten seconds, with members by the partitions they own."""
    views = tuple(
        MemberView(
            id=f"m{number}",
            topics=frozenset({TOPIC}),
            owned=frozenset((TOPIC, partition) for partition in owned),
        )
        for number, owned in enumerate(members)
    )
    owners = {key: member.id for member in views for key in member.owned}
    rows = tuple(
        PartitionLag(
            topic=TOPIC,
            partition=number,
            standing=Standing.OK if lag is not None else Standing.NO_COMMIT,
            committed=1000,
            start=0,
            end=1000 + (lag or 0),
            lag=lag,
            behind_ms=behind_ms if lag else 0,
            member=owners.get((TOPIC, number)),
        )
        for number, lag in enumerate(lags)
    )
    made = Snapshot(
        group=GroupLag(
            group="shop",
            type="classic",
            state="Stable" if members else "Empty",
            assignor="range",
            members=views,
            partitions=rows,
        ),
        watched_s=10.0,
        measurements=40,
        flows={row.key: Flow(written, read) for row in rows},
        topic_partitions={TOPIC: len(lags)},
        inflows={row.key: Inflow(20.0, 20.0) for row in rows},
    )
    return replace(made, **given)  # type: ignore[arg-type]


def with_row(made: Snapshot, **given: object) -> Snapshot:
    """The same with another first partition."""
    first, *others = made.group.partitions
    changed = replace(first, **given)  # type: ignore[arg-type]
    return replace(made, group=replace(made.group, partitions=(changed, *others)))


def inflows(*per_s: float, earlier: float | None = 20.0) -> dict[tuple[str, int], Inflow]:
    return {(TOPIC, number): Inflow(rate, earlier) for number, rate in enumerate(per_s)}


SITUATIONS: dict[Cause, Callable[[], Snapshot]] = {
    Cause.NO_CONSUMER: lambda: snapshot([500, 500], []),
    Cause.NOT_SUBSCRIBED: lambda: _elsewhere(snapshot([500], [{0}])),
    Cause.OUT_OF_RANGE: lambda: with_row(
        snapshot([None], [{0}]), standing=Standing.BEYOND, committed=5000
    ),
    Cause.REBALANCE_STORM: lambda: snapshot([500, 500], [{0}, {1}], rebalances=5, unsettled=12),
    Cause.ERRORS: lambda: snapshot(
        [500], [{0}], failures=(Failures(TOPIC, 4000, 0, "KeyError: 'tea'"),)
    ),
    Cause.OPEN_TRANSACTION: lambda: with_row(snapshot([0], [{0}]), held=70),
    Cause.KEY_SKEW: lambda: snapshot(
        [3, 9000, 4, 2],
        [{0, 1}, {2, 3}],
        inflows=inflows(1, 100, 1, 1),
        sample=Sample((TOPIC, 1), 1000, 12, (("anna", 900), ("ben", 50))),
    ),
    Cause.BURST: lambda: snapshot([5000, 5000], [{0}, {1}], inflows=inflows(100, 100)),
    Cause.MORE_CONSUMERS: lambda: snapshot([500, 500], [{0}, {1}, set(), set()]),
    Cause.FEWER_CONSUMERS: lambda: snapshot([500] * 4, [{0, 1, 2, 3}]),
    Cause.SLOW_HANDLER: lambda: snapshot([500, 500], [{0}, {1}]),
    Cause.UNCLEAR: lambda: snapshot([5], [{0}], read=0, written=5, rebalances=1),
    Cause.NONE: lambda: snapshot([0, 0], [{0}, {1}]),
}


def _elsewhere(made: Snapshot) -> Snapshot:
    """Its members read another topic now."""
    member = MemberView(id="m0", topics=frozenset({"payments"}))
    return replace(made, group=replace(made.group, members=(member,)))


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.name.lower())
def test_each_cause_is_the_first_that_is_named_in_its_situation(cause: Cause) -> None:
    found = explain(SITUATIONS[cause]())
    assert found[0].cause is cause
    assert found[0].evidence


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.name.lower())
def test_every_command_is_one_that_the_tool_understands(cause: Cause) -> None:
    for finding in explain(SITUATIONS[cause](), "-b 127.0.0.1:9092"):
        for remedy in finding.remedies:
            if remedy.command:
                parse(remedy.command.replace("MODULE:APP", "shop:app").replace("URL", "sqlite://"))
    assert cause is Cause.NONE or any(
        remedy.command for finding in explain(SITUATIONS[cause]()) for remedy in finding.remedies
    )


def parse(text: str) -> None:
    """Read a command line as the tool does, without doing it."""
    words = shlex.split(text.partition(" | ")[0])
    assert words.pop(0) == "headrace"
    verb: click.Command = command()  # type: ignore[assignment]
    context: click.Context | None = None
    while isinstance(verb, click.Group):
        name = words.pop(0)
        context = click.Context(verb, parent=context, info_name=name)
        found = verb.get_command(context, name)
        assert found is not None, text
        verb = found
    verb.make_context(verb.name, words, parent=context)


def test_a_remedy_names_the_group_and_the_place_as_a_shell_takes_them() -> None:
    made = with_row(snapshot([None], [{0}]), standing=Standing.BEYOND, committed=5000)
    made = replace(made, group=replace(made.group, group="it's; odd"))
    command = explain(made)[0].remedies[0].command
    assert shlex.split(command) == [
        "headrace", "group", "seek", "it's; odd",
        "--to", "latest", "--topic", "orders:0", "--dry-run",
    ]  # fmt: skip


def test_the_figures_are_in_the_evidence() -> None:
    said = "\n".join(explain(SITUATIONS[Cause.FEWER_CONSUMERS]())[0].evidence)
    assert "1 member for 4 partitions of orders" in said
    assert "in 10 s, 80.0 records/s came in and 40.0 were read" in said
    said = "\n".join(explain(SITUATIONS[Cause.KEY_SKEW]())[0].evidence)
    assert "orders:1 has 9000 of the 9009 records" in said
    assert "97% of the recent records; a fair part is 25%" in said
    assert "900 of its next 1000 records have the key 'anna'" in said
    said = "\n".join(explain(SITUATIONS[Cause.ERRORS]())[0].evidence)
    assert "4000 dead letters of orders in the last hour; the last: KeyError: 'tea'" in said
    said = "\n".join(explain(SITUATIONS[Cause.SLOW_HANDLER]())[0].evidence)
    assert "2 members behind, at 10.0 records/s each: 100 ms per record" in said


def causes(made: Snapshot) -> set[Cause]:
    return {finding.cause for finding in explain(made)}


def test_keys_that_are_many_want_more_partitions() -> None:
    made = replace(
        SITUATIONS[Cause.KEY_SKEW](), sample=Sample((TOPIC, 1), 1000, 800, (("anna", 9),))
    )
    [first, *_] = explain(made)
    assert first.cause is Cause.KEY_SKEW
    assert first.remedies[0].command == "headrace topic alter orders --partitions 8"


def test_one_partition_behind_with_an_even_inflow_is_no_skew() -> None:
    assert Cause.KEY_SKEW not in causes(snapshot([0, 9000, 0, 0], [{0, 1}, {2, 3}]))


def test_a_partition_that_stands_still_is_an_error_after_some_seconds_only() -> None:
    made = snapshot([500, 0], [{0}, {1}], read=0)
    [first, *_] = explain(made)
    assert first.cause is Cause.ERRORS
    assert "orders:0 has been at offset 1000 for 10 s, although member m0 owns it" in first.evidence
    assert first.remedies[0].command == ("headrace consume orders --partition 0 --offset 1000 -c 1")
    assert Cause.ERRORS not in causes(replace(made, watched_s=5.0))


def test_a_member_that_takes_its_partitions_one_by_one_is_not_stuck_in_the_others() -> None:
    made = snapshot([500, 500], [{0, 1}], read=0)
    reading = replace(made, flows={**made.flows, (TOPIC, 1): Flow(0, 50)})
    assert Cause.ERRORS in causes(made)
    assert Cause.ERRORS not in causes(reading)


def test_few_failures_among_many_records_are_no_cause() -> None:
    made = SITUATIONS[Cause.ERRORS]()
    few = replace(made, failures=(Failures(TOPIC, 3, 0, "KeyError"),))
    assert Cause.ERRORS not in causes(few)
    assert Cause.ERRORS not in causes(with_row(made, lag=0))


def test_a_topic_that_is_younger_than_the_past_has_no_burst() -> None:
    made = replace(SITUATIONS[Cause.BURST](), inflows=inflows(100, 100, earlier=None))
    assert Cause.BURST not in causes(made)


def test_a_burst_that_is_read_by_now_does_not_explain_an_older_lag() -> None:
    made = snapshot([500_000], [{0}], inflows=inflows(100, earlier=1.0))
    assert Cause.BURST not in causes(made)


def test_members_that_share_partitions_are_never_too_many() -> None:
    made = SITUATIONS[Cause.MORE_CONSUMERS]()
    made = replace(made, group=replace(made.group, type="share"))
    assert not {Cause.MORE_CONSUMERS, Cause.FEWER_CONSUMERS} & causes(made)


def test_a_group_that_soon_has_caught_up_is_not_slow() -> None:
    made = snapshot([500], [{0}], read=2000, written=100, behind_ms=60_000)
    assert Cause.SLOW_HANDLER not in causes(made)
    assert "catches up in 3 s" in explain(made)[0].evidence[1]


def test_looks_are_compared() -> None:
    def group(committed: int, end: int, member: str, state: str, at_ms: int) -> GroupLag:
        row = PartitionLag(
            topic=TOPIC,
            partition=0,
            standing=Standing.OK,
            committed=committed,
            end=end,
            lag=end - committed,
        )
        view = MemberView(id=member, owned=frozenset({(TOPIC, 0)}))
        return GroupLag(group="shop", state=state, members=(view,), partitions=(row,), at_ms=at_ms)

    found = compare(
        [
            group(10, 100, "a", "Stable", 1000),
            group(10, 120, "a", "PreparingRebalance", 2000),
            group(15, 140, "b", "Stable", 3000),
        ]
    )
    assert found.flows == {(TOPIC, 0): Flow(40, 5)}
    assert (found.watched_s, found.measurements, found.rebalances, found.unsettled) == (
        2.0,
        3,
        1,
        1,
    )


def rows() -> Iterator[st.SearchStrategy[object]]:
    yield st.lists(st.one_of(st.none(), st.integers(0, 10_000)), min_size=1, max_size=5)
    yield st.lists(st.sets(st.integers(0, 4)), max_size=4)
    yield st.integers(0, 1000)
    yield st.integers(0, 1000)
    yield st.integers(0, 5)


@given(*rows())
def test_whatever_is_seen_something_is_said_and_each_cause_once(
    lags: list[int | None], members: list[set[int]], read: int, written: int, rebalances: int
) -> None:
    found = explain(snapshot(lags, members, read=read, written=written, rebalances=rebalances))
    assert found
    assert len({finding.cause for finding in found}) == len(found)
    assert all(finding.evidence for finding in found)
