"""The versions of a pipeline: which may be replayed, compared, stopped, switched to and dropped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.aliases import live_version, make_live
from headrace.spark.pipelines.outputs import drop_output, output_exists, remove_folder
from headrace.spark.pipelines.queries import letters_checkpoint
from headrace.spark.pipelines.sinks import describe
from headrace.spark.pipelines.version_folder import DROPPING, VersionFolder, known_versions

if TYPE_CHECKING:
    from headrace.spark.pipelines.definitions import Pipeline

STOP_SECONDS = 120.0
POLL_SECONDS = 0.1


def check_replay(pipeline: Pipeline, client: Mapping[str, str]) -> None:
    """PipelineError if the version in the code is live already."""
    if live_version(client, pipeline.sink) == pipeline.version:
        raise PipelineError(
            f"version {pipeline.version} of {pipeline.name} is live",
            "to replay into a new output, raise version= in @pipeline",
        )


def versions_to_compare(
    pipeline: Pipeline, client: Mapping[str, str], old: int | None, new: int | None
) -> tuple[int, int]:
    """The old version, by default the live one, and the new one, by default that in the code."""
    first = old or live_version(client, pipeline.sink)
    if first is None:
        raise PipelineError(f"no version of {pipeline.name} is live", "give --old VERSION")
    second = new or pipeline.version
    if first == second:
        raise PipelineError(
            f"version {first} is both the old and the new one", "give --old and --new"
        )
    return first, second


def stop(root: Path, name: str, version: int | None = None) -> list[VersionFolder]:
    """Stop a running version, or all of them, and wait until they have ended."""
    known = [each for each in known_versions(root, name) if version in (None, each.version)]
    running = [each for each in known if each.is_running]
    if not running:
        raise PipelineError(f"{name} is not running", "see headrace pipeline status")
    for each in running:
        each.ask_to_stop()
    deadline_s = time.monotonic() + STOP_SECONDS
    while any(each.is_running for each in running):
        if time.monotonic() > deadline_s:
            raise PipelineError(f"{name} has not stopped in {STOP_SECONDS:g} s", "is Spark hung?")
        time.sleep(POLL_SECONDS)
    return running


def switch(
    pipeline: Pipeline, root: Path, version: int, client: Mapping[str, str], *, force: bool
) -> int | None:
    """Make a version live; returns the one that was. `force` accepts an unfinished replay."""
    known = VersionFolder(root, pipeline.name, version).state()
    if "state" not in known and not force:
        raise PipelineError(
            f"version {version} of {pipeline.name} has not run from {root}, "
            "so it is unknown whether it is complete",
            "give the --home where it ran, or --force to switch to the output as it is",
        )
    if known.get("is_bounded") and known["state"] != "finished" and not force:
        raise PipelineError(
            f"the replay of version {version} is not finished: it is {known['state']}",
            "continue it with headrace pipeline replay, or --force to switch to what there is",
        )
    before = live_version(client, pipeline.sink)
    if not output_exists(pipeline.sink, version, client):
        raise PipelineError(
            f"there is no {describe(pipeline.sink, version)}", "run headrace pipeline replay"
        )
    make_live(client, pipeline.sink, version)
    return before


def drop(pipeline: Pipeline, root: Path, version: int, client: Mapping[str, str]) -> None:
    """Delete the output and the checkpoint of a version that is neither live nor running."""
    if live_version(client, pipeline.sink) == version:
        raise PipelineError(
            f"version {version} of {pipeline.name} is live", "switch to another one first"
        )
    folder = VersionFolder(root, pipeline.name, version)
    with folder.locked():
        # The checkpoint goes first: with the checkpoint but no output, a run would skip all that
        # was read. Until both are deleted, this version does not run.
        checkpoint = folder.state().get("checkpoint", folder.checkpoint)
        folder.write_state({"state": DROPPING, "checkpoint": checkpoint})
        for each in (checkpoint, letters_checkpoint(checkpoint)):
            remove_folder(each)
        drop_output(pipeline.sink, version, client)
        shutil.rmtree(folder.folder, ignore_errors=True)
