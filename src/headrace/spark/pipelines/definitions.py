"""The definition of a pipeline: a function from events to rows, its sources and its sink.

@pipeline(source="clicks", sink="clicks_per_minute", version=2, value=Json("user STRING, ..."))
def clicks_per_minute(events: DataFrame) -> DataFrame: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.sinks import Folder, Sink, Table, Topic, as_sink

if TYPE_CHECKING:
    from headrace.spark.pipelines.values import ValueFormat

TASKS = 4
OUTPUT_MODES = ("append", "update", "complete")
# The name of a single source.
ONLY = "events"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

Function = Callable[..., Any]
OutputMode = Literal["append", "update", "complete"]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic to read: the format of its values, its watermark, and whether it is a table.

    `watermark` is the column of the event time and how late events may come: ("at", "10 minutes").
    With `latest=True` the topic is a table: each batch reads the latest row of each key.
    """

    topic: str
    value: ValueFormat | None = None
    watermark: tuple[str, str] | None = None
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A defined pipeline, which `headrace pipeline run` runs."""

    name: str
    function: Function
    sources: Mapping[str, Source]
    sink: Sink
    version: int = 1
    output_mode: OutputMode = "append"
    trigger: str | None = None
    tasks: int = TASKS
    start: str = "earliest"
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Apply the function to DataFrames, for tests."""
        return self.function(*frames, **named)

    def from_zero(self) -> Pipeline:
        """The same pipeline from the beginning of its topics, whatever `start` says."""
        options = {
            name: each
            for name, each in self.options.items()
            if not name.lower().startswith("starting")
        }
        return replace(self, start="earliest", options=options)


def pipeline(
    *,
    source: str | Source | Mapping[str, str | Source],
    sink: str | Sink,
    version: int = 1,
    value: ValueFormat | None = None,
    watermark: tuple[str, str] | None = None,
    output_mode: OutputMode = "append",
    trigger: str | None = None,
    tasks: int = TASKS,
    start: str = "earliest",
    dead_letters: str | None = None,
    options: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Callable[[Function], Pipeline]:
    """Make a pipeline of a function from DataFrames to a DataFrame.

    The function gets a single source as its argument, several by their names. A new `version` has
    its own output and checkpoint. `tasks` is how many tasks write to a topic at the same time.
    `trigger` is the interval between batches ("10 seconds"). `dead_letters` is the topic for
    values that cannot be decoded, by default SOURCE.dlq. `options` are those of the source.
    """

    def make(function: Function) -> Pipeline:
        made = Pipeline(
            name=name or str(getattr(function, "__name__", "")),
            function=function,
            sources=_sources(source, value, watermark),
            sink=as_sink(sink),
            version=version,
            output_mode=output_mode,
            trigger=trigger,
            tasks=tasks,
            start=start,
            dead_letters=dead_letters,
            options=dict(options or {}),
        )
        _check(made)
        return made

    return make


def _sources(
    given: str | Source | Mapping[str, str | Source],
    value: ValueFormat | None,
    watermark: tuple[str, str] | None,
) -> dict[str, Source]:
    several = given if isinstance(given, Mapping) else {ONLY: given}
    found = {}
    for name, each in several.items():
        source = Source(each, value, watermark) if isinstance(each, str) else each
        if not source.topic:
            raise PipelineError(f"source {name!r} has no topic", 'source="clicks"')
        found[name] = source
    if not found or all(each.latest for each in found.values()):
        raise PipelineError("a pipeline needs a source that streams", 'source="clicks"')
    return found


def _check(made: Pipeline) -> None:
    wrong = {
        f"{made.name!r} is not a valid pipeline name": not _NAME.fullmatch(made.name),
        f"version {made.version!r} is below 1": made.version < 1,
        f"{made.tasks} tasks are too few, the minimum is 1": made.tasks < 1,
        f"output mode {made.output_mode!r} is not one of {', '.join(OUTPUT_MODES)}": (
            made.output_mode not in OUTPUT_MODES
        ),
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise PipelineError(words, "@pipeline(source=..., sink=..., version=1)")
    sink = made.sink
    can_change = isinstance(sink, Topic) or (isinstance(sink, Table) and bool(sink.keys))
    if made.output_mode == "update" and not can_change:
        raise PipelineError(
            "this sink cannot change rows, which output mode update needs",
            "use Table(..., keys=[...])",
        )
    if made.output_mode == "complete" and isinstance(sink, Folder):
        raise PipelineError(
            "a folder keeps every batch, but output mode complete replaces them", "use Table(...)"
        )
    own = {sink.output(made.version)} if isinstance(sink, Topic) else set()
    if own & {each.topic for each in made.sources.values()}:
        raise PipelineError(f"{made.name} would read what it writes", "use another topic")
