"""What runs a pipeline from the command line: its definition found, Spark opened, a bar shown."""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.common.connection import check_reachable
from headrace.cli.common.errors import CliError
from headrace.cli.common.loading import load_module
from headrace.cli.common.pairs import parse_pairs
from headrace.cli.common.signals import on_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.definitions import Pipeline
    from headrace.spark.pipelines.progress import Progress
    from headrace.spark.pipelines.windows import Window


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `run` and `replay`, as they were given."""

    bootstrap: str
    property: list[str] | None
    master: str | None
    conf: list[str] | None
    connector: str
    checkpoints: str | None
    repin: bool
    home: Path


def run_pipeline(
    target: str,
    options: RunOptions,
    *,
    to_end: bool,
    per_second: float | None,
    window: Window | None,
    is_replay: bool,
) -> None:
    """Run a pipeline in this process until it ends or is stopped.

    A replay reads all that its topics hold, and makes nothing live.
    """
    defined = load_pipeline(target)
    pipeline = defined.from_zero() if is_replay else defined
    check_reachable(options.bootstrap)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Py4J tells of every call that is cut short by a stop.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with pipeline_errors():
        from headrace.client.settings import common_settings
        from headrace.spark.pipelines.aliases import live_version, make_live
        from headrace.spark.pipelines.homes import DROPPING, Home
        from headrace.spark.pipelines.runner import Runner
        from headrace.spark.pipelines.sinks import describe
        from headrace.spark.pipelines.writing import Start
        from headrace.spark.sessions import open_session

        settings = {name: str(each) for name, each in parse_pairs(options.property, "-X").items()}
        home = Home(options.home, pipeline.name, pipeline.version)
        where = {"bootstrap.servers": options.bootstrap, **common_settings(settings)}
        base = options.checkpoints
        start = Start(
            options.bootstrap,
            home.checkpoint if base is None else f"{base.rstrip('/')}/{home.name}/v{home.version}",
            settings,
            options.connector,
            to_end,
            per_second,
            options.repin,
        )
        with home.held(), _progress_bar(to_end) as on_progress:
            known = home.state()
            if known.get("state") == DROPPING:
                raise CliError(
                    f"version {home.version} of {home.name} is half dropped",
                    f"headrace pipeline drop {target} --version {home.version} ends it",
                )
            runner = Runner(pipeline, start, home, window=window, on_progress=on_progress)
            on_stop(runner.request_stop)
            spark = open_session(pipeline.name, options.master, dict(_confs(options.conf)))
            _send_along(pipeline)
            try:
                _prepare(pipeline, spark, start.checkpoint, where, known)
                output = describe(pipeline.sink, pipeline.version)
                print(
                    f"running {pipeline.name} version {pipeline.version} into {output}", flush=True
                )
                if not is_replay and live_version(where, pipeline.sink) is None:
                    runner.on_first_batch = lambda: make_live(
                        where, pipeline.sink, pipeline.version
                    )
                runner.run(spark)
            finally:
                spark.stop()
    print(f"{home.state()['state']}", flush=True)


def load_pipelines(module_name: str) -> dict[str, Pipeline]:
    """The pipelines that a module defines, by what they are called there."""
    from headrace.spark.pipelines.definitions import Pipeline

    with pipeline_errors():
        module = load_module(module_name)
    found = {name: each for name, each in vars(module).items() if isinstance(each, Pipeline)}
    if not found:
        raise CliError(f"{module_name} defines no pipeline", "@pipeline(source=..., sink=...)")
    return found


def load_pipeline(target: str) -> Pipeline:
    """The pipeline at MODULE:NAME; the name may be left out where there is only one."""
    module_name, _, name = target.partition(":")
    found = load_pipelines(module_name)
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
        hint = f"did you mean {module_name}:{near[0]}?" if near else f"there are {', '.join(found)}"
        raise CliError(f"{module_name} defines no pipeline {name!r}", hint)
    return found[name]


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Turn errors of pipelines into errors of the command."""
    from headrace.client.errors import UnknownSetting
    from headrace.spark.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise CliError(error.message, error.hint) from None
    except UnknownSetting as unknown:
        raise CliError(str(unknown), "-X takes the names of Kafka's own clients") from None
    except ImportError as missing:
        if "pip install" not in str(missing):
            raise
        raise CliError(str(missing)) from None


def _prepare(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoint: str,
    where: dict[str, str],
    known: dict[str, Any],
) -> None:
    """Make the topics that are written to, unless they were there once: then they are missed."""
    from headrace.spark.pipelines.hadoop_files import HadoopFiles
    from headrace.spark.pipelines.outputs import make_topics, output_exists
    from headrace.spark.pipelines.sinks import describe

    has_written = bool(HadoopFiles(spark).names(f"{checkpoint}/commits"))
    if has_written and not output_exists(pipeline.sink, pipeline.version, where):
        raise CliError(
            f"{describe(pipeline.sink, pipeline.version)} is gone, "
            "and its checkpoint says what was written to it",
            "restore it, or raise version= in @pipeline and replay into a new one",
        )
    before = known.get("checkpoint", checkpoint)
    if not has_written and before != checkpoint and known.get("batch", -1) >= 0:
        raise CliError(
            f"version {pipeline.version} of {pipeline.name} has its checkpoint at {before}, "
            f"and from an empty one at {checkpoint} it would write all of it again",
            "give --checkpoints as before, or raise version= in @pipeline",
        )
    make_topics(pipeline, where)


def _send_along(pipeline: Pipeline) -> None:
    """Let functions of the pipeline's module travel to executors, which do not have the module."""
    from pyspark import cloudpickle

    travel: Callable[[Any], None] = cloudpickle.register_pickle_by_value
    travel(sys.modules[pipeline.function.__module__])


def _confs(given: list[str] | None) -> Iterator[tuple[str, str]]:
    for name, value in parse_pairs(given, "--conf").items():
        yield name, str(value)


@contextmanager
def _progress_bar(is_bounded: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A bar with rate and time left, for a run whose end is known and that a person looks at."""
    if not is_bounded or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns: list[Any] = [
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f} records/s"),
        TimeRemainingColumn(),
    ]
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("records", total=None, rate=0.0)

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=max(progress.total, 0),
                completed=max(progress.done, 0),
                rate=progress.rows_per_s,
            )

        yield show
