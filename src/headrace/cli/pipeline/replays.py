"""`headrace pipeline replay`, `compare`, `switch` and `drop`: new code beside the old output."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.parsing import parse_pairs
from headrace.cli.pipeline.loading import client_settings, load_pipeline, pipeline_errors
from headrace.cli.pipeline.options import (
    ConfOption,
    HomeOption,
    LaunchOptions,
    MasterOption,
    NewOption,
    OldOption,
    RateOption,
    TargetArgument,
)
from headrace.cli.pipeline.running import run_pipeline

COUNTS = ("old_rows", "new_rows", "same", "different", "only_old", "only_new")
EXAMPLES = ("key", "kind", "old", "new")


@with_groups
def replay(
    target: TargetArgument,
    *,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="HH:MM-HH:MM", help="Run only in these hours of the day."),
    ] = None,
    rate: RateOption = None,
    kafka: KafkaOptions,
    launch: LaunchOptions,
) -> None:
    """Run the version in the code from offset zero to the end, into its own output.

    Readers see no change until `headrace pipeline switch`. A replay that was interrupted continues
    where it was.
    """
    pipeline = load_pipeline(target)
    client = client_settings(kafka)
    with pipeline_errors():
        from headrace.spark.pipelines.pacing import Window
        from headrace.spark.pipelines.versions import check_replay

        hours = Window.parse(window) if window else None
        check_replay(pipeline, client)
    settings = launch.settings(kafka, rate=rate, to_end=True, window=hours, is_replay=True)
    run_pipeline(pipeline, settings)


@with_groups
def compare(
    target: TargetArgument,
    *,
    old: OldOption = None,
    new: NewOption = None,
    kafka: KafkaOptions,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Compare two versions of an output, key by key; status 1 if they differ."""
    pipeline = load_pipeline(target)
    client = client_settings(kafka)
    with pipeline_errors():
        from headrace.spark.pipelines.comparison import compare as compare_outputs
        from headrace.spark.pipelines.versions import versions_to_compare
        from headrace.spark.sessions import open_session

        first, second = versions_to_compare(pipeline, client, old, new)
        spark = open_session(pipeline.name, master, parse_pairs(conf, "--conf"))
        try:
            options = {f"kafka.{name}": value for name, value in client.items()}
            found = compare_outputs(spark, pipeline.sink, first, second, options)
        finally:
            spark.stop()
    if output is Output.json:
        show_json({"old": first, "new": second, **found.to_dict()})
    else:
        show_rows([{name: getattr(found, name) for name in COUNTS}], COUNTS, output)
        if found.examples:
            show_rows(found.examples, EXAMPLES, output)
    if found.different or found.only_old or found.only_new:
        raise typer.Exit(1)


@with_groups
def switch(
    target: TargetArgument,
    *,
    to: Annotated[
        int | None,
        typer.Option("--to", help="The version.", show_default="the one in the code"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if its replay is not finished.")
    ] = False,
    kafka: KafkaOptions,
    home: HomeOption,
) -> None:
    """Make a version live for readers at once; the old output stays until it is dropped."""
    pipeline = load_pipeline(target)
    client = client_settings(kafka)
    version = to or pipeline.version
    with pipeline_errors():
        from headrace.spark.pipelines.versions import switch as switch_version

        before = switch_version(pipeline, home, version, client, force=force)
    print(f"{pipeline.name}: version {version} is live, before it was {before or 'none'}")


@with_groups
def drop(
    target: TargetArgument,
    *,
    version: Annotated[int, typer.Option("--version", help="The version to drop.")],
    kafka: KafkaOptions,
    home: HomeOption,
) -> None:
    """Delete the output and the checkpoint of a version that is neither live nor running."""
    pipeline = load_pipeline(target)
    client = client_settings(kafka)
    with pipeline_errors():
        from headrace.spark.pipelines.sinks import describe
        from headrace.spark.pipelines.versions import drop as drop_version

        drop_version(pipeline, home, version, client)
    print(f"dropped {describe(pipeline.sink, version)}")
