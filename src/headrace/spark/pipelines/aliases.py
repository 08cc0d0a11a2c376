"""Aliases: which version of a pipeline's output is live, kept where its readers look.

The alias of a topic is a record of the compacted topic `headrace.aliases`, that of a table is a
view, and that of a folder is its link `live`, or the file `_live.json` where there are no links.
Each is changed atomically: a reader sees the old output or the new one.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.admin.topics import NeededTopic, admin_client, make_topics
from headrace.client.compacted import CompactedReader
from headrace.client.producer import Producer
from headrace.client.settings import ClientSettings, with_bootstrap
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.hadoop_files import HadoopFiles, is_remote, opened_files
from headrace.spark.pipelines.sinks import LIVE_FOLDER, Folder, Sink, Table, Topic
from headrace.spark.pipelines.sql_batches import open_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy import Connection

    from headrace.store.database import Database

TOPIC = "headrace.aliases"
READ_SECONDS = 30.0
# Instead of a link at a Hadoop URL; Spark ignores files whose names begin with an underscore.
POINTER_FILE = "_live.json"


def live_topic(bootstrap: str | ClientSettings, name: str) -> str:
    """The topic of the live version, which readers of a pipeline's output subscribe to."""
    found = _read_alias(bootstrap, name)
    return name if found is None else str(found["topic"])


def live_folder(spark: SparkSession, path: str) -> str:
    """The folder of the live version below a path or Hadoop URL; PipelineError if none is live.

    A DataFrame keeps reading the folder it was made for; call this again before each new read.
    """
    sink = Folder(path)
    version = (
        _pointer_version(HadoopFiles(spark), sink)
        if is_remote(sink.absolute_path)
        else _link_version(sink)
    )
    if version is None:
        raise PipelineError(f"no version of {path} is live", "run headrace pipeline switch")
    return sink.output(version)


def live_version(bootstrap: str | ClientSettings, sink: Sink) -> int | None:
    """The version that readers of a sink see; None if none is live."""
    if isinstance(sink, Topic):
        found = _read_alias(bootstrap, sink.name)
        return None if found is None else int(found["version"])
    if isinstance(sink, Table):
        with open_sql(sink.url) as database, database.connect() as connection:
            return _view_version(database, connection, sink)
    if not is_remote(sink.absolute_path):
        return _link_version(sink)
    with opened_files() as files:
        return _pointer_version(files, sink)


def make_live(bootstrap: str | ClientSettings, sink: Sink, version: int) -> None:
    """Make a version live for readers; durable when it returns."""
    if isinstance(sink, Topic):
        _write_alias(bootstrap, sink, version)
    elif isinstance(sink, Table):
        _change_view(sink, version)
    elif is_remote(sink.absolute_path):
        with opened_files() as files:
            files.write_text(
                f"{sink.absolute_path}/{POINTER_FILE}", json.dumps({"version": version})
            )
    else:
        _change_link(sink, version)


def _read_alias(bootstrap: str | ClientSettings, name: str) -> dict[str, Any] | None:
    found: dict[bytes, bytes | None] = {}
    with CompactedReader(bootstrap, TOPIC, found.__setitem__) as reader:
        if not reader.caught_up.wait(READ_SECONDS):
            raise PipelineError(
                f"{TOPIC} could not be read in {READ_SECONDS:g} s", "is the broker overloaded?"
            )
    value = found.get(name.encode())
    if value is None:
        return None
    alias: dict[str, Any] = json.loads(value)
    return alias


def _write_alias(bootstrap: str | ClientSettings, sink: Topic, version: int) -> None:
    given = with_bootstrap(bootstrap)
    make_topics(admin_client(given), [NeededTopic(TOPIC, 1, must={"cleanup.policy": "compact"})])
    alias = {"topic": sink.output(version), "version": version}
    with Producer({"enable.idempotence": False, "linger.ms": 0, **given}) as producer:
        producer.send_and_wait(TOPIC, json.dumps(alias).encode(), key=sink.name.encode())


def _view_version(database: Database, connection: Any, sink: Table) -> int | None:
    from sqlalchemy import inspect

    schema = inspect(connection)
    if sink.name not in schema.get_view_names():
        if sink.name in schema.get_table_names():
            raise PipelineError(
                f"{sink.name} is a table, but has to be a view of the live version",
                "rename the table, or give the sink another name",
            )
        return None
    definition = str(schema.get_view_definition(sink.name))
    for version in range(1, 10_000):
        if sink.output(version) in definition.replace(";", " ").replace('"', " ").split():
            return version
    return None


def _change_view(sink: Table, version: int) -> None:
    with open_sql(sink.url) as database, database.connect() as connection:
        exists = _view_version(database, connection, sink) is not None
        connection.rollback()
        quote = database.engine.dialect.identifier_preparer.quote
        with database.begin(connection, write=True):
            # Both databases change views within transactions, so readers always find one.
            view = f"VIEW {quote(sink.name)} AS SELECT * FROM {quote(sink.output(version))}"
            if exists and database.kind == "postgresql":
                _replace_view(connection, sink.name, view)
                return
            if exists:
                connection.exec_driver_sql(f"DROP VIEW {quote(sink.name)}")
            connection.exec_driver_sql(f"CREATE {view}")


def _replace_view(connection: Connection, name: str, view: str) -> None:
    """Replace a view of PostgreSQL and keep its privileges."""
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError

    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"CREATE OR REPLACE {view}")
        return
    except DBAPIError:
        # Its columns differ, so the view has to be dropped and created.
        pass
    quote = connection.dialect.identifier_preparer.quote
    granted = connection.execute(
        text(
            "SELECT grantee, privilege_type FROM information_schema.table_privileges "
            "WHERE table_schema = current_schema() AND table_name = :name"
        ),
        {"name": name},
    ).all()
    try:
        connection.exec_driver_sql(f"DROP VIEW {quote(name)}")
    except DBAPIError as problem:
        why = str(problem.orig).splitlines()[0]
        raise PipelineError(
            f"the columns of the view {name} cannot be changed: {why}",
            "drop what depends on it first, and create that again after the switch",
        ) from None
    connection.exec_driver_sql(f"CREATE {view}")
    for grantee, privilege in granted:
        to = "PUBLIC" if grantee == "PUBLIC" else quote(grantee)
        connection.exec_driver_sql(f"GRANT {privilege} ON {quote(name)} TO {to}")


def _link_version(sink: Folder) -> int | None:
    link = _local(sink) / LIVE_FOLDER
    if not link.is_symlink():
        return None
    return int(os.readlink(link).rstrip("/").rpartition("/v")[2].removeprefix("v"))


def _pointer_version(files: HadoopFiles, sink: Folder) -> int | None:
    known = files.read_text(f"{sink.absolute_path}/{POINTER_FILE}")
    return None if known is None else int(json.loads(known)["version"])


def _change_link(sink: Folder, version: int) -> None:
    folder = _local(sink)
    aside = folder / f".{LIVE_FOLDER}-{uuid.uuid4().hex}"
    aside.symlink_to(f"v{version}", target_is_directory=True)
    os.replace(aside, folder / LIVE_FOLDER)


def _local(sink: Folder) -> Path:
    return Path(sink.absolute_path.removeprefix("file://"))
