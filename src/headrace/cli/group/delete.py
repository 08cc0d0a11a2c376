"""`headrace group delete`: delete groups, or their offsets of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import GroupsArgument, YesOption, confirm
from headrace.cli.common.partition_sets import parse_selection


@with_groups
def delete(
    names: GroupsArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITIONS]",
            help="Delete only the offsets of this topic; may be repeated.",
        ),
    ] = None,
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
