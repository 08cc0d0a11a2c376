"""Where a pipeline writes: a topic, a table or a folder, and what each version's output is called.

Every version has an output of its own, and one name for readers points to the live one: an alias
record for topics, a view for tables, a pointer in the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.spark.errors import PipelineError

LIVE_FOLDER = "live"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `key` names the column or columns that become the record's key, as text.

    Rows without a column `value` become JSON objects. The first version is the topic of that name
    itself, later ones are NAME.v2 and so on. `options` are those of the connector's sink, as in
    {"kafka.compression.type": "lz4"}.
    """

    name: str
    key: str | Sequence[str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def output(self, version: int) -> str:
        """The topic of a version."""
        return self.name if version == 1 else f"{self.name}.v{version}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (
            () if self.key is None else (self.key,) if isinstance(self.key, str) else (*self.key,)
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table of SQLite or PostgreSQL; with `keys`, a row takes the place of the one before.

    Versions are the tables NAME_v1, NAME_v2; NAME is a view of the live one. A row whose column
    `deletes` is true removes the row with its keys. Of the rows of a batch with the same keys the
    one with the highest `latest_by` counts.
    """

    url: str
    name: str
    keys: Sequence[str] = ()
    deletes: str | None = None
    latest_by: str | None = None

    def output(self, version: int) -> str:
        """The table of a version."""
        return f"{self.name}_v{version}"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of Parquet files, of this machine or any URL that Hadoop knows.

    Versions are PATH/v1, PATH/v2; PATH/live leads to the live one.
    """

    path: str
    partition_by: Sequence[str] = ()
    keys: Sequence[str] = ()

    def output(self, version: int) -> str:
        """The folder of a version."""
        return f"{self.place}/v{version}"

    @property
    def place(self) -> str:
        """The folder, from the root: Spark's JVM may have been started elsewhere."""
        path = self.path.rstrip("/")
        return path if "://" in path else str(Path(path).absolute())


Sink = Topic | Table | Folder


def as_sink(given: str | Sink) -> Sink:
    """A sink, from itself or from the name of a topic."""
    if isinstance(given, Topic | Table | Folder):
        return given
    if not given or "/" in given:
        raise PipelineError(
            f"{given!r} is no topic", "Folder(PATH) and Table(URL, NAME) are the other sinks"
        )
    return Topic(given)


def describe(sink: Sink, version: int) -> str:
    """A sink's output in a few words, without the secrets that a URL may hold."""
    kind = type(sink).__name__.lower()
    return f"{kind} {sink.output(version)}"
