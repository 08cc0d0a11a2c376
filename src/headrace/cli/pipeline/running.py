"""Running a pipeline from the command line: with its log, a progress bar and Ctrl-C."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.cli.common.connection import check_reachable
from headrace.cli.common.processes import on_stop, start_logging
from headrace.cli.pipeline.loading import pipeline_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.spark.pipelines.definitions import Pipeline
    from headrace.spark.pipelines.launcher import LaunchSettings
    from headrace.spark.pipelines.progress import Progress


def run_pipeline(pipeline: Pipeline, settings: LaunchSettings) -> None:
    """Run a pipeline until it ends or is stopped, and print its last state."""
    check_reachable(settings.bootstrap)
    start_logging()
    # Py4J logs every call that a stop interrupts.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)

    def print_start(output: str) -> None:
        print(f"running {pipeline.name} version {pipeline.version} into {output}", flush=True)

    with pipeline_errors(), _progress_bar(settings.to_end) as on_progress:
        from headrace.spark.pipelines.launcher import launch

        state = launch(
            pipeline,
            settings,
            on_runner=lambda runner: on_stop(runner.request_stop),
            on_start=print_start,
            on_progress=on_progress,
        )
    print(state, flush=True)


@contextmanager
def _progress_bar(is_bounded: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A bar with the rate and the time left, for a bounded run in a terminal."""
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
