"""`headrace pipeline`: run pipelines on Spark, look after them, and replay them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.common.connection import BootstrapOption, PropertyOption
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.pipeline import replays as pipeline_replays
from headrace.cli.pipeline.options import (
    CheckpointsOption,
    ConfOption,
    ConnectorOption,
    HomeOption,
    MasterOption,
    RepinOption,
    TargetArgument,
)
from headrace.cli.pipeline.running import RunOptions, load_pipelines, run_pipeline
from headrace.client.times import show_time

app = typer.Typer(
    help="Run pipelines on Spark, look after them, and replay them beside their old output.",
    no_args_is_help=True,
)

STOP_SECONDS = 120.0
LOOK_SECONDS = 0.1
DEFINED = ("name", "version", "sources", "sink", "mode")
KNOWN = ("name", "version", "state", "batch", "rows_per_s", "restarts", "updated", "error")


@app.command()
def run(
    target: TargetArgument,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Read what is there now, with a bar, and end.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", help="At most so many records a second.")
    ] = None,
    bootstrap: BootstrapOption,
    property: PropertyOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    connector: ConnectorOption = "headrace",
    checkpoints: CheckpointsOption = None,
    repin: RepinOption = False,
    home: HomeOption,
) -> None:
    """Run a pipeline until Ctrl-C, SIGTERM or `headrace pipeline stop`; then it goes on there.

    The first version that ever runs becomes the live one.
    """
    options = RunOptions(bootstrap, property, master, conf, connector, checkpoints, repin, home)
    run_pipeline(target, options, to_end=once, per_second=rate, window=None, is_replay=False)


@app.command("list")
def list_pipelines(
    module: Annotated[str, typer.Argument(help="The module that defines them.")],
    *,
    output: OutputOption = Output.table,
) -> None:
    """List the pipelines that a module defines."""
    from headrace.spark.pipelines.sinks import describe

    rows = [
        {
            "name": each.name,
            "version": each.version,
            "sources": [source.topic for source in each.sources.values()],
            "sink": describe(each.sink, each.version),
            "mode": each.output_mode,
        }
        for each in load_pipelines(module).values()
    ]
    show_rows(rows, DEFINED, output)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="Only this pipeline.")] = None,
    *,
    output: OutputOption = Output.table,
    home: HomeOption,
) -> None:
    """Show how the pipelines of this machine are; JSON has all that is known."""
    from headrace.spark.pipelines.homes import homes

    states = [each.state() for each in homes(home, name)]
    if output is Output.json:
        show_json(states)
        return
    if name and not states:
        raise CliError(f"{name} has never run here", "headrace pipeline run MODULE:NAME")
    rows = []
    for state in states:
        updated = state.get("updated_ms")
        rows.append(
            {column: state.get(column) for column in KNOWN}
            | {"updated": show_time(updated) if updated else None}
        )
    show_rows(rows, KNOWN, output)


@app.command()
def stop(
    name: Annotated[str, typer.Argument(help="The pipeline.")],
    *,
    version: Annotated[
        int | None, typer.Option("--version", help="Only this version.", show_default="all")
    ] = None,
    home: HomeOption,
) -> None:
    """Stop a pipeline and wait until it has ended; `run` goes on where it was."""
    from headrace.spark.pipelines.homes import homes

    known = [each for each in homes(home, name) if version in (None, each.version)]
    running = [each for each in known if each.is_running]
    if not running:
        raise CliError(f"{name} does not run", "headrace pipeline status shows what does")
    for each in running:
        each.ask_to_stop()
    deadline_s = time.monotonic() + STOP_SECONDS
    while any(each.is_running for each in running):
        if time.monotonic() > deadline_s:
            raise CliError(f"{name} has not stopped within {STOP_SECONDS:g} s", "is Spark hung?")
        time.sleep(LOOK_SECONDS)
    print(f"stopped {', '.join(f'{each.name} version {each.version}' for each in running)}")


app.command()(pipeline_replays.replay)
app.command()(pipeline_replays.compare)
app.command()(pipeline_replays.switch)
app.command()(pipeline_replays.drop)
