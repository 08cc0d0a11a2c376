"""`headrace group rebalance`: make a group assign its partitions again."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.durations import parse_duration_ms
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import GroupArgument


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
