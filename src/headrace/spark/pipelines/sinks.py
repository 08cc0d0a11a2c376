"""Where a pipeline writes: a topic, a table or a folder, with a separate output for each version.

Readers use one name that points to the live version: an alias record for topics, a view for tables,
a link or pointer file for folders.
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

    Rows without a column `value` become JSON objects. Version 1 is the topic NAME itself, later
    ones are NAME.v2 and so on. `options` are those of the connector's sink, such as
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
    """A table of SQLite or PostgreSQL; with `keys`, a row replaces the one with the same keys.

    Versions are the tables NAME_v1, NAME_v2; NAME is a view of the live one. A row whose column
    `deletes` is true deletes the row with its keys. Of a batch's rows with the same keys, the one
    with the highest `latest_by` is written.
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
    """A folder of Parquet files, on this machine or at any Hadoop URL.

    Versions are PATH/v1, PATH/v2; PATH/live is the live one.
    """

    path: str
    partition_by: Sequence[str] = ()
    keys: Sequence[str] = ()

    def output(self, version: int) -> str:
        """The folder of a version."""
        return f"{self.absolute_path}/v{version}"

    @property
    def absolute_path(self) -> str:
        """The absolute path, since Spark's JVM may have another working directory."""
        path = self.path.rstrip("/")
        return path if "://" in path else str(Path(path).absolute())


Sink = Topic | Table | Folder


def as_sink(given: str | Sink) -> Sink:
    """A sink; a text is the name of a topic."""
    if isinstance(given, Topic | Table | Folder):
        return given
    if not given or "/" in given:
        raise PipelineError(
            f"{given!r} is not a valid topic name",
            "or use Folder(PATH), Table(URL, NAME)",
        )
    return Topic(given)


def describe(sink: Sink, version: int) -> str:
    """A sink's output for people, without the URL, which may contain secrets."""
    kind = type(sink).__name__.lower()
    return f"{kind} {sink.output(version)}"
