"""`headrace group delete`: forget groups, or what they have read of a topic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.common.arguments import GroupsArgument, YesOption
from headrace.cli.common.cluster import open_cluster
from headrace.cli.common.connection import BootstrapOption, PropertyOption
from headrace.cli.common.partition_sets import parse_selection


def delete(
    names: GroupsArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITIONS]",
            help="Forget only the offsets of this topic; may be repeated.",
        ),
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Delete groups that have no members, or their offsets of a topic that nobody there reads."""
    from headrace.cli.group.deleting import delete_group, delete_offsets
    from headrace.cli.group.names import find_groups

    selection = parse_selection(topic, "--topic")
    with open_cluster(bootstrap, properties) as cluster:
        find_groups(cluster, names)
    if sys.stdin.isatty() and not yes:
        part = f"the offsets of {', '.join(topic)} in " if topic else ""
        typer.confirm(f"Delete {part}{', '.join(names)}?", abort=True)
    for name in names:
        with open_cluster(bootstrap, properties) as cluster:
            if selection:
                done = f"deleted offsets of {name}: {delete_offsets(cluster, name, selection)}"
            else:
                delete_group(cluster, name)
                done = f"deleted {name}"
        print(done)
