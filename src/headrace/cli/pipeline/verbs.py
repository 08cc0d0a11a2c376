"""`headrace pipeline`: run pipelines on Spark, see how they are, stop them and replay them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.pipeline import replays
from headrace.cli.pipeline.loading import load_pipeline, load_pipelines, pipeline_errors
from headrace.cli.pipeline.options import HomeOption, LaunchOptions, RateOption, TargetArgument
from headrace.cli.pipeline.running import run_pipeline
from headrace.client.times import show_time

app = typer.Typer(
    help="Run pipelines on Spark, and replay them with new code beside their old output.",
    no_args_is_help=True,
)

DEFINED = ("name", "version", "sources", "sink", "mode")
KNOWN = ("name", "version", "state", "batch", "rows_per_s", "restarts", "updated", "error")


@app.command()
@with_groups
def run(
    target: TargetArgument,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Read what is there now, with a bar, then end.")
    ] = False,
    rate: RateOption = None,
    kafka: KafkaOptions,
    launch: LaunchOptions,
) -> None:
    """Run a pipeline until Ctrl-C, SIGTERM or `headrace pipeline stop`; a new run continues there.

    The first version that ever runs becomes the live one.
    """
    pipeline = load_pipeline(target)
    run_pipeline(pipeline, launch.settings(kafka, rate=rate, to_end=once))


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
    """Show the state of the pipelines on this machine; JSON has all details."""
    from headrace.spark.pipelines.version_folder import known_versions

    states = [each.state() for each in known_versions(home, name)]
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
    """Stop a pipeline and wait until it has ended; a new `run` continues where it was."""
    with pipeline_errors():
        from headrace.spark.pipelines.versions import stop as stop_versions

        stopped = stop_versions(home, name, version)
    print(f"stopped {', '.join(f'{each.name} version {each.version}' for each in stopped)}")


app.command()(replays.replay)
app.command()(replays.compare)
app.command()(replays.switch)
app.command()(replays.drop)
