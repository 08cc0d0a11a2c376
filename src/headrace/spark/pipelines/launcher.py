"""Launches a pipeline in this process: its lock, its Spark session, its output and its runner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.settings import common_settings
from headrace.spark import sessions
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.aliases import live_version, make_live
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.outputs import make_topics, output_exists
from headrace.spark.pipelines.queries import QuerySettings
from headrace.spark.pipelines.runner import OnProgress, Runner
from headrace.spark.pipelines.sinks import describe
from headrace.spark.pipelines.version_folder import DROPPING, VersionFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.definitions import Pipeline
    from headrace.spark.pipelines.pacing import Window


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How a pipeline is run on this machine."""

    bootstrap: str
    root: Path
    """The folder of the states and checkpoints of pipelines."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka clients."""
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    connector: str = "headrace"
    checkpoints: str | None = None
    repin: bool = False
    to_end: bool = False
    records_per_s: float | None = None
    window: Window | None = None
    is_replay: bool = False
    """Read the topics from their beginning, and make nothing live."""


def launch(
    pipeline: Pipeline,
    settings: LaunchSettings,
    *,
    on_runner: Callable[[Runner], None],
    on_start: Callable[[str], None],
    on_progress: OnProgress | None = None,
) -> str:
    """Run a pipeline until it ends or is stopped; returns its last state.

    `on_runner` gets the runner before Spark is opened, so that it can be stopped; `on_start` gets
    a description of the output. The first version that ever runs becomes the live one.
    """
    if settings.is_replay:
        pipeline = pipeline.from_zero()
    folder = VersionFolder(settings.root, pipeline.name, pipeline.version)
    client = {"bootstrap.servers": settings.bootstrap, **common_settings(settings.client)}
    queries = QuerySettings(
        settings.bootstrap,
        folder.checkpoint_in(settings.checkpoints),
        settings.client,
        settings.connector,
        settings.to_end,
        settings.records_per_s,
        settings.repin,
    )
    with folder.locked():
        known = folder.state()
        if known.get("state") == DROPPING:
            raise PipelineError(
                f"version {folder.version} of {folder.name} is half dropped",
                f"finish it: headrace pipeline drop MODULE:NAME --version {folder.version}",
            )
        runner = Runner(pipeline, queries, folder, window=settings.window, on_progress=on_progress)
        on_runner(runner)
        spark = sessions.open_session(pipeline.name, settings.master, settings.spark)
        _pickle_by_value(pipeline)
        try:
            prepare_output(pipeline, spark, queries.checkpoint, client, known)
            on_start(describe(pipeline.sink, pipeline.version))
            if not settings.is_replay and live_version(client, pipeline.sink) is None:
                runner.on_first_batch = lambda: make_live(client, pipeline.sink, pipeline.version)
            runner.run(spark)
        finally:
            spark.stop()
    return str(folder.state()["state"])


def prepare_output(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoint: str,
    client: Mapping[str, str],
    known: Mapping[str, Any],
) -> None:
    """Create the topics that a pipeline writes to.

    PipelineError if its checkpoint says that it has written to an output that is gone, or if it has
    a checkpoint elsewhere and would write everything again.
    """
    has_written = bool(HadoopFiles(spark).names(f"{checkpoint}/commits"))
    if has_written and not output_exists(pipeline.sink, pipeline.version, client):
        raise PipelineError(
            f"{describe(pipeline.sink, pipeline.version)} is gone, "
            "but its checkpoint says that it was written to",
            "restore it, or raise version= in @pipeline and replay into a new one",
        )
    before = known.get("checkpoint", checkpoint)
    if not has_written and before != checkpoint and known.get("batch", -1) >= 0:
        raise PipelineError(
            f"version {pipeline.version} of {pipeline.name} has its checkpoint at {before}; "
            f"from an empty one at {checkpoint} it would write everything again",
            "give --checkpoints as before, or raise version= in @pipeline",
        )
    make_topics(pipeline, client)


def _pickle_by_value(pipeline: Pipeline) -> None:
    """Send the functions of the pipeline's module to executors, which do not have the module."""
    from pyspark import cloudpickle

    register: Callable[[Any], None] = cloudpickle.register_pickle_by_value
    register(sys.modules[pipeline.function.__module__])
