"""`headrace group seek`: move a group to other offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import GroupArgument, PartitionsOption
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.cli.common.parsing import now_ms, parse_selection

PLAN_COLUMNS = ("topic", "partition", "from", "to", "change", "lag", "note")


@with_groups
def seek(
    name: GroupArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="earliest, latest, current, N, +N or -N (shift), -15m (that long ago), "
            "2024-05-01T12:00Z (UTC if no zone is given), @MS, file:PATH, group:NAME.",
            show_default=False,
        ),
    ],
    topic: PartitionsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would be done, without doing it.")
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Create the group if it is missing.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the offsets to FILE, for --to file:FILE; CSV or .json."
        ),
    ] = None,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Move a group that has no members to other offsets."""
    from headrace.client.admin import seek as seeking
    from headrace.client.admin.errors import AdminError
    from headrace.client.admin.groups import MARKERS, list_groups, no_group
    from headrace.client.admin.offset_files import write_offsets
    from headrace.client.admin.seek_target import parse_target

    if name.startswith(MARKERS):
        raise CliError(
            f"{name} is a marker: its offset is the number of the batch that a query wrote last",
            "leave it alone: a query whose marker moves loses rows or writes them twice",
        )
    try:
        target = parse_target(to, now_ms())
    except AdminError as problem:
        raise CliError(f"--to {problem.message}", problem.hint, 2) from None
    selection = parse_selection(topic, "--topic")
    admin = kafka.admin()
    with kafka.cluster() as cluster, kafka.errors():
        listed = {row.group: row for row in list_groups(cluster)}
        if name not in listed and not new:
            missing = no_group(name, listed)
            raise CliError(missing.message, f"{missing.hint}; --new creates a group")
        plan = seeking.make_plan(admin, cluster, name, target, selection)
        if not plan:
            raise CliError(f"group {name!r} has no offsets", "name its topics: --topic TOPIC")
        if export is not None:
            write_offsets(export, seeking.offsets(plan))
        if not dry_run:
            if name in listed and listed[name].has_members:
                raise seeking.has_members(name)
            seeking.apply_plan(cluster, name, plan)
    show_rows([move.row() for move in plan], PLAN_COLUMNS, output)
    if output is Output.table:
        done = "would move" if dry_run else "moved"
        print(f"{done} {name} in {len(seeking.changes(plan))} of {len(plan)} partitions")
