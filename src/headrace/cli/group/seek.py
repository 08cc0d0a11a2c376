"""`headrace group seek`: move a group to other offsets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common.arguments import GroupArgument
from headrace.cli.common.cluster import open_cluster
from headrace.cli.common.connection import (
    BootstrapOption,
    PropertyOption,
    admin_client,
    client_errors,
)
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.cli.common.partition_sets import parse_selection
from headrace.cli.group.seek_target import parse_target

PLAN_COLUMNS = ("topic", "partition", "from", "to", "change", "lag", "note")


def seek(
    name: GroupArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="earliest, latest, current, N, +N or -N (shift), -15m (that long ago), "
            "2024-05-01T12:00Z (UTC if no zone is given), @MS, file:PATH, group:NAME.",
            show_default=False,
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITIONS]",
            help="Only this topic, or partitions of it as in orders:0,2-4; may be repeated.",
            show_default="all that the group has read",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would be done, and do nothing.")
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Make the group if it is not there.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the places to FILE, for --to file:FILE; CSV or .json."
        ),
    ] = None,
    output: OutputOption = Output.table,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Move a group that has no members to other offsets."""
    from headrace.cli.group import seek_plan
    from headrace.cli.group.names import no_group
    from headrace.cli.group.seek_files import write_places
    from headrace.client.admin.groups import MARKERS, list_groups

    if name.startswith(MARKERS):
        raise CliError(
            f"{name} reads nothing: its offset is the number of the batch that a query wrote last",
            "a query whose marker is moved loses rows, or writes them twice",
        )
    target = parse_target(to, round(time.time() * 1000))
    selection = parse_selection(topic, "--topic")
    admin = admin_client(bootstrap, properties)
    with open_cluster(bootstrap, properties) as cluster, client_errors(bootstrap):
        listed = {row.group: row for row in list_groups(cluster)}
        if name not in listed and not new:
            missing = no_group(name, listed)
            raise CliError(missing.message, f"{missing.hint}; --new makes a group")
        plan = seek_plan.make_plan(admin, cluster, name, target, selection)
        if not plan:
            raise CliError(f"group {name!r} has no offsets", "say which topic with --topic TOPIC")
        if export is not None:
            write_places(export, seek_plan.places(plan))
        if not dry_run:
            if name in listed and listed[name].has_members:
                raise seek_plan.has_members(name)
            seek_plan.carry_out(cluster, name, plan)
    show_rows([move.row() for move in plan], PLAN_COLUMNS, output)
    if output is Output.table:
        done = "would move" if dry_run else "moved"
        print(f"{done} {name} in {len(seek_plan.changes(plan))} of {len(plan)} partitions")
