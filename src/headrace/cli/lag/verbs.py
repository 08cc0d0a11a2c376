"""`headrace lag`: how far groups are behind, live, and why."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import GroupArgument
from headrace.cli.common.output import Output, OutputOption, quiet_pipe
from headrace.cli.common.parsing import parse_duration_ms
from headrace.cli.common.stores import StoreOption

if TYPE_CHECKING:
    from headrace.lag.group_lag import GroupLag
    from headrace.lag.rules import LagConfig

PatternsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP...]", help="Names or patterns such as 'shop-*'; all if none."),
]

app = typer.Typer(
    help="Show how far groups are behind in records and in time, and why.", no_args_is_help=True
)


@app.command("list")
@with_groups
def list_lag(
    names: PatternsArgument = None,
    *,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="One line for each partition.")
    ] = False,
    behind: Annotated[bool, typer.Option("--behind", help="Only what has lag.")] = False,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """List the lag of groups of every kind; JSON has the partitions too."""
    from headrace.cli.lag import rows as lag_rows
    from headrace.client.clock import SystemClock
    from headrace.lag.meter import Meter

    with kafka.cluster() as cluster:
        is_wanted = lag_rows.group_filter(cluster, names)
        found = Meter(cluster, SystemClock()).measure(is_wanted)
    if behind:
        found = [group for group in found if group.lag]
    lag_rows.show_groups(found, output, partitions=partitions, behind=behind)


@app.command()
@with_groups
def watch(
    names: PatternsArgument = None,
    *,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often to measure.")] = "5s",
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after this many measurements.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules of the lag service; adds a level column."),
    ] = None,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the lag of groups repeatedly, with their read and write rates; Ctrl-C stops it."""
    from headrace.cli.lag import rows as lag_rows
    from headrace.client.clock import SystemClock
    from headrace.lag.meter import Meter
    from headrace.lag.watch_machine import LagWatch

    every_ms = parse_duration_ms(every, "--every")
    clock = SystemClock()
    levels = None if rules is None else LagWatch(_read_rules(rules), {}, clock.monotonic_ms())
    never = threading.Event()
    with (
        kafka.cluster() as cluster,
        quiet_pipe(),
        contextlib.suppress(KeyboardInterrupt),
    ):
        meter = Meter(cluster, clock)
        is_wanted = lag_rows.group_filter(cluster, names)
        before: dict[str, GroupLag] = {}
        number = 0
        while True:
            measured = meter.measure(is_wanted)
            if levels is not None:
                levels.update(measured, clock.now_ms(), clock.monotonic_ms())
            lag_rows.show_measurement(measured, before, levels, output)
            before = {group.group: group for group in measured}
            number += 1
            if number == count:
                return
            clock.wait(never, every_ms)


@app.command()
@with_groups
def explain(
    name: GroupArgument,
    *,
    watch_for: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to watch the group first.")
    ] = "10s",
    store: StoreOption,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show why a group is behind, with the evidence and the remedies."""
    from headrace.cli.lag import rows as lag_rows
    from headrace.client.admin.groups import list_groups, no_group
    from headrace.client.clock import SystemClock
    from headrace.config import environment
    from headrace.lag.causes import explain as find_causes
    from headrace.lag.gather import gather

    watch_ms = parse_duration_ms(watch_for, "--for")
    waiting = lag_rows.waiting_retries(store) if store else {}
    with kafka.cluster() as cluster:
        snapshot = gather(cluster, name, SystemClock(), watch_ms, waiting)
        if snapshot is None:
            raise no_group(name, [row.group for row in list_groups(cluster)])
    is_default = kafka.bootstrap == environment.bootstrap_servers()
    findings = find_causes(snapshot, "" if is_default else f"-b {kafka.bootstrap}")
    lag_rows.show_findings(snapshot.group, findings, output)


def _read_rules(path: Path) -> LagConfig:
    from headrace.lag.rules import RulesError, read_config

    try:
        return read_config(path)
    except RulesError as problem:
        raise CliError(problem.message, problem.hint, 2) from None
