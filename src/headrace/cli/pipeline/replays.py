"""`headrace pipeline replay`, `compare`, `switch` and `drop`: new code beside the old output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import BootstrapOption, PropertyOption, check_reachable
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.pairs import parse_pairs
from headrace.cli.pipeline.options import (
    CheckpointsOption,
    ConfOption,
    ConnectorOption,
    HomeOption,
    MasterOption,
    RepinOption,
    TargetArgument,
)
from headrace.cli.pipeline.running import RunOptions, load_pipeline, pipeline_errors, run_pipeline

if TYPE_CHECKING:
    from headrace.spark.pipelines.definitions import Pipeline

COUNTS = ("old_rows", "new_rows", "same", "different", "only_old", "only_new")
EXAMPLES = ("key", "kind", "old", "new")

OldOption = Annotated[
    int | None, typer.Option("--old", help="The old version.", show_default="the live one")
]
NewOption = Annotated[
    int | None, typer.Option("--new", help="The new version.", show_default="the one in the code")
]


def replay(
    target: TargetArgument,
    *,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="HH:MM-HH:MM", help="Run only in these hours of the day."),
    ] = None,
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
    """Run the code's version from offset zero to the end, into an output of its own.

    What readers see stays as it is until `headrace pipeline switch`. A replay that was interrupted
    goes on where it was.
    """
    pipeline = load_pipeline(target)
    where = _where(bootstrap, property)
    check_reachable(bootstrap)
    with pipeline_errors():
        from headrace.spark.pipelines.aliases import live_version
        from headrace.spark.pipelines.windows import Window

        hours = Window.parse(window) if window else None
        if live_version(where, pipeline.sink) == pipeline.version:
            raise CliError(
                f"version {pipeline.version} of {pipeline.name} is live",
                "a replay is of a new version: raise version= in @pipeline",
            )
    options = RunOptions(bootstrap, property, master, conf, connector, checkpoints, repin, home)
    run_pipeline(target, options, to_end=True, per_second=rate, window=hours, is_replay=True)


def compare(
    target: TargetArgument,
    *,
    old: OldOption = None,
    new: NewOption = None,
    bootstrap: BootstrapOption,
    property: PropertyOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Compare two versions of an output, key by key; status 1 if they differ."""
    pipeline = load_pipeline(target)
    where = _where(bootstrap, property)
    check_reachable(bootstrap)
    with pipeline_errors():
        from headrace.spark.pipelines.comparing import compare as compare_outputs
        from headrace.spark.sessions import open_session

        first, second = _versions(pipeline, where, old, new)
        settings = {name: str(each) for name, each in parse_pairs(conf, "--conf").items()}
        spark = open_session(pipeline.name, master, settings)
        try:
            options = {f"kafka.{name}": value for name, value in where.items()}
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


def switch(
    target: TargetArgument,
    *,
    to: Annotated[
        int | None,
        typer.Option("--to", help="The version.", show_default="the one in the code"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if its replay has not come to its end.")
    ] = False,
    bootstrap: BootstrapOption,
    property: PropertyOption = None,
    home: HomeOption,
) -> None:
    """Make a version live for readers at once; the old output stays until it is dropped."""
    pipeline = load_pipeline(target)
    where = _where(bootstrap, property)
    check_reachable(bootstrap)
    version = to or pipeline.version
    with pipeline_errors():
        from headrace.spark.pipelines.aliases import live_version, make_live
        from headrace.spark.pipelines.homes import Home
        from headrace.spark.pipelines.outputs import output_exists
        from headrace.spark.pipelines.sinks import describe

        known = Home(home, pipeline.name, version).state()
        if "state" not in known and not force:
            raise CliError(
                f"version {version} of {pipeline.name} has not run from {home}, "
                "so nobody can say whether it has come to its end",
                "--home names where it ran; --force switches to what there is",
            )
        if known.get("is_bounded") and known["state"] != "finished" and not force:
            raise CliError(
                f"the replay of version {version} has not come to its end: it is {known['state']}",
                "headrace pipeline replay goes on with it; --force switches to what there is",
            )
        before = live_version(where, pipeline.sink)
        if not output_exists(pipeline.sink, version, where):
            raise CliError(
                f"there is no {describe(pipeline.sink, version)}",
                "headrace pipeline replay makes it",
            )
        make_live(where, pipeline.sink, version)
    print(f"{pipeline.name}: version {version} is live, before it was {before or 'none'}")


def drop(
    target: TargetArgument,
    *,
    version: Annotated[int, typer.Option("--version", help="The version to drop.")],
    bootstrap: BootstrapOption,
    property: PropertyOption = None,
    home: HomeOption,
) -> None:
    """Delete the output and the checkpoint of a version that is not live and does not run."""
    pipeline = load_pipeline(target)
    where = _where(bootstrap, property)
    check_reachable(bootstrap)
    with pipeline_errors():
        import shutil

        from headrace.spark.pipelines.aliases import live_version
        from headrace.spark.pipelines.homes import DROPPING, Home
        from headrace.spark.pipelines.outputs import drop_output, remove_folder
        from headrace.spark.pipelines.sinks import describe
        from headrace.spark.pipelines.writing import letters_checkpoint

        if live_version(where, pipeline.sink) == version:
            raise CliError(
                f"version {version} of {pipeline.name} is live", "switch to another one first"
            )
        kept = Home(home, pipeline.name, version)
        with kept.held():
            # The checkpoint goes first: with it and without its output, a run would pass over all
            # that was read. Until both are gone, nobody runs this version.
            checkpoint = kept.state().get("checkpoint", kept.checkpoint)
            kept.write_state({"state": DROPPING, "checkpoint": checkpoint})
            for each in (checkpoint, letters_checkpoint(checkpoint)):
                remove_folder(each)
            drop_output(pipeline.sink, version, where)
            shutil.rmtree(kept.folder, ignore_errors=True)
        print(f"dropped {describe(pipeline.sink, version)}")


def _where(bootstrap: str, properties: list[str] | None) -> dict[str, str]:
    from headrace.client.settings import common_settings

    given = {name: str(each) for name, each in parse_pairs(properties, "-X").items()}
    with pipeline_errors():
        return {"bootstrap.servers": bootstrap, **common_settings(given)}


def _versions(
    pipeline: Pipeline, where: dict[str, str], old: int | None, new: int | None
) -> tuple[int, int]:
    from headrace.spark.pipelines.aliases import live_version

    first = old or live_version(where, pipeline.sink)
    if first is None:
        raise CliError(f"no version of {pipeline.name} is live", "--old VERSION")
    second = new or pipeline.version
    if first == second:
        raise CliError(f"version {first} is both the old and the new one", "--old and --new")
    return first, second
