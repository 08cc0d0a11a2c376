"""Pipelines: a function from events to rows, with where both come from and go to.

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
# The name that a single source has.
ONLY = "events"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

Function = Callable[..., Any]
OutputMode = Literal["append", "update", "complete"]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic to read: what its values are, how late its events come, whether it is a table.

    `watermark` is a column of event time and how late it may be: ("at", "10 minutes"). With
    `latest=True` the topic is read anew for each batch as a table, the latest row of each key.
    """

    topic: str
    value: ValueFormat | None = None
    watermark: tuple[str, str] | None = None
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as it was defined; `headrace pipeline run` runs it."""

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
        """Apply it to DataFrames, as in a test of it."""
        return self.function(*frames, **named)

    def from_zero(self) -> Pipeline:
        """The same pipeline over all that its topics hold, wherever it begins otherwise."""
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
    """Make a function from DataFrames to a DataFrame a pipeline.

    One source is given to the function as its argument, several by their names. A new `version`
    has an output and a checkpoint of its own. So many `tasks` write to a topic at the same time.
    `trigger` is the time from batch to batch ("10 seconds"). `dead_letters` is the topic for
    values that cannot be read (SOURCE.dlq unless given). `options` are those of the source.
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
            raise PipelineError(f"source {name!r} names no topic", 'source="clicks"')
        found[name] = source
    if not found or all(each.latest for each in found.values()):
        raise PipelineError("a pipeline needs a source that streams", 'source="clicks"')
    return found


def _check(made: Pipeline) -> None:
    wrong = {
        f"{made.name!r} is no name for a pipeline": not _NAME.fullmatch(made.name),
        f"version {made.version!r} is not a number from 1 on": made.version < 1,
        f"{made.tasks} tasks cannot write": made.tasks < 1,
        f"output mode {made.output_mode!r} is none of {', '.join(OUTPUT_MODES)}": made.output_mode
        not in OUTPUT_MODES,
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise PipelineError(words, "@pipeline(source=..., sink=..., version=1)")
    sink = made.sink
    can_change = isinstance(sink, Topic) or (isinstance(sink, Table) and bool(sink.keys))
    if made.output_mode == "update" and not can_change:
        raise PipelineError(
            "output mode update changes rows, and this sink cannot", "Table(..., keys=[...]) can"
        )
    if made.output_mode == "complete" and isinstance(sink, Folder):
        raise PipelineError(
            "a folder keeps every batch, and mode complete replaces them", "Table(...) can"
        )
    own = {sink.output(made.version)} if isinstance(sink, Topic) else set()
    if own & {each.topic for each in made.sources.values()}:
        raise PipelineError(f"{made.name} would read what it writes", "use another topic")
