"""`headrace group`: list, describe, seek, rebalance and delete consumer groups."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import (
    GroupArgument,
    GroupsArgument,
    PartitionsOption,
    YesOption,
    confirm,
)
from headrace.cli.common.output import Output, OutputOption, show_each, show_rows
from headrace.cli.common.parsing import parse_duration_ms, parse_selection
from headrace.cli.group import seek as group_seek
from headrace.client.admin.partition_sets import show_partitions

MEMBER_COLUMNS = ("member", "client", "host", "instance", "partitions")
PARTITION_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member")
TIME_COLUMNS = (*PARTITION_COLUMNS[:-1], "behind", "member")

app = typer.Typer(
    help="List, describe, seek, rebalance and delete consumer groups.", no_args_is_help=True
)


class GroupState(StrEnum):
    """States of all kinds of groups, by Kafka's names."""

    empty = "Empty"
    preparing = "PreparingRebalance"
    completing = "CompletingRebalance"
    stable = "Stable"
    dead = "Dead"
    assigning = "Assigning"
    reconciling = "Reconciling"


class GroupType(StrEnum):
    """Kinds of groups."""

    classic = "classic"
    consumer = "consumer"
    share = "share"
    streams = "streams"


@app.command("list")
@with_groups
def list_groups(
    *,
    state: Annotated[
        list[GroupState] | None,
        typer.Option(case_sensitive=False, help="Only groups in this state; may be repeated."),
    ] = None,
    type_: Annotated[
        list[GroupType] | None,
        typer.Option(
            "--type", case_sensitive=False, help="Only groups of this type; may be repeated."
        ),
    ] = None,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """List groups of every kind."""
    from headrace.client.admin import groups

    with kafka.cluster() as cluster:
        found = groups.list_groups(cluster)
    rows = [
        {
            "group": row.group,
            "type": row.type,
            "protocol": row.protocol,
            "state": row.state,
            "coordinator": row.coordinator.node_id,
        }
        for row in found
        if (not state or row.state in state) and (not type_ or row.type in type_)
    ]
    show_rows(rows, ("group", "type", "protocol", "state", "coordinator"), output)


@app.command()
@with_groups
def describe(
    names: GroupsArgument,
    *,
    behind: Annotated[
        bool,
        typer.Option(
            "--behind", help="Also how many seconds ago the next record of each was written."
        ),
    ] = False,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the state, the members, and the offsets and lag of groups."""
    from headrace.cli.group.details import read_groups
    from headrace.client.admin.groups import find_groups

    with kafka.cluster() as cluster:
        details = read_groups(cluster, find_groups(cluster, names), behind=behind)
    show_each(details, output, partial(_show_group, behind=behind))


def _show_group(detail: dict[str, Any], behind: bool) -> None:
    at = detail["coordinator"]
    words = {
        "group": detail["group"],
        "state": detail["state"],
        "type": detail["type"],
        "assignor": detail["assignor"],
        "coordinator": f"{at['node_id']} ({at['host']}:{at['port']})",
        "members": len(detail["members"]),
        "lag": detail["lag"],
    }
    print("  ".join(f"{name} {word}" for name, word in words.items() if word is not None))
    if detail["members"]:
        members = [{**row, "partitions": _words(row["partitions"])} for row in detail["members"]]
        show_rows(members, MEMBER_COLUMNS, Output.table)
    if detail["members"] and detail["partitions"]:
        print()
    if detail["partitions"]:
        show_rows(detail["partitions"], TIME_COLUMNS if behind else PARTITION_COLUMNS, Output.table)


def _words(partitions: dict[str, list[int]]) -> str | None:
    return " ".join(show_partitions(*item) for item in partitions.items()) or None


@app.command()
@with_groups
def rebalance(
    name: GroupArgument,
    *,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEMBER",
            help="Remove this member, by member id or instance id; may be repeated.",
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait until it is done.")
    ] = "1m",
    kafka: KafkaOptions,
) -> None:
    """Make a group assign its partitions to its members again, and wait until it has."""
    from headrace.client.admin.groups import find_groups
    from headrace.client.admin.rebalance import Rebalance

    seconds_max = parse_duration_ms(timeout, "--timeout") / 1000
    began = time.monotonic()
    with kafka.cluster() as cluster:
        rebalancing = Rebalance(cluster, find_groups(cluster, [name])[0])
        if remove:
            rebalancing.remove(remove)
        else:
            rebalancing.start()
        members = rebalancing.wait(seconds_max)
    took = time.monotonic() - began
    print(f"rebalanced {name}: {members} {'member' if members == 1 else 'members'}, {took:.1f} s")


@app.command()
@with_groups
def delete(
    names: GroupsArgument,
    *,
    topic: PartitionsOption = None,
    yes: YesOption = False,
    kafka: KafkaOptions,
) -> None:
    """Delete groups that have no members, or their offsets of topics that no member reads."""
    from headrace.client.admin.groups import delete_group, delete_offsets, find_groups

    selection = parse_selection(topic, "--topic")
    with kafka.cluster() as cluster:
        find_groups(cluster, names)
    part = f"the offsets of {', '.join(topic)} in " if topic else ""
    confirm(f"Delete {part}{', '.join(names)}?", yes)
    for name in names:
        with kafka.cluster() as cluster:
            if selection:
                done = f"deleted offsets of {name}: {delete_offsets(cluster, name, selection)}"
            else:
                delete_group(cluster, name)
                done = f"deleted {name}"
        print(done)


app.command()(group_seek.seek)
