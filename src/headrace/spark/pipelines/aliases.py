"""Aliases: which version of a pipeline's output is live, kept where the readers of a sink look.

A topic's alias is a record of the compacted topic `headrace.aliases`, a table's a view, a folder's
the link `live` in it, or where there are no links the file `_live.json`. Each is changed at once:
who looks finds the old output or the new one.
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
from headrace.client.settings import Settings, with_bootstrap
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.hadoop_files import HadoopFiles, is_remote, opened_files
from headrace.spark.pipelines.sinks import LIVE_FOLDER, Folder, Sink, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy import Connection

    from headrace.store.database import Database

TOPIC = "headrace.aliases"
READ_SECONDS = 30.0
# In a folder that has no links; Spark passes over files whose names begin so.
POINTER = "_live.json"


def live_topic(bootstrap: str | Settings, name: str) -> str:
    """The topic that an alias stands for: what a reader of a pipeline's output subscribes to."""
    found = _read_alias(bootstrap, name)
    return name if found is None else str(found["topic"])


def live_folder(spark: SparkSession, path: str) -> str:
    """The folder that is live of those below a path, wherever Hadoop has it; PipelineError if none.

    What is read from it once stays: a reader looks again before it reads anew.
    """
    sink = Folder(path)
    version = _pointed(HadoopFiles(spark), sink) if is_remote(sink.place) else _linked(sink)
    if version is None:
        raise PipelineError(f"no version of {path} is live", "headrace pipeline switch makes one")
    return sink.output(version)


def live_version(bootstrap: str | Settings, sink: Sink) -> int | None:
    """The version that readers of a sink see; None if none has been made live."""
    if isinstance(sink, Topic):
        found = _read_alias(bootstrap, sink.name)
        return None if found is None else int(found["version"])
    if isinstance(sink, Table):
        with _database(sink) as database, database.connect() as connection:
            return _view_version(database, connection, sink)
    if not is_remote(sink.place):
        return _linked(sink)
    with opened_files() as files:
        return _pointed(files, sink)


def make_live(bootstrap: str | Settings, sink: Sink, version: int) -> None:
    """Let readers see a version from now on; durable when it returns."""
    if isinstance(sink, Topic):
        _write_alias(bootstrap, sink, version)
    elif isinstance(sink, Table):
        _change_view(sink, version)
    elif is_remote(sink.place):
        with opened_files() as files:
            files.write_text(f"{sink.place}/{POINTER}", json.dumps({"version": version}))
    else:
        _change_link(sink, version)


def _read_alias(bootstrap: str | Settings, name: str) -> dict[str, Any] | None:
    found: dict[bytes, bytes | None] = {}
    with CompactedReader(bootstrap, TOPIC, found.__setitem__) as reader:
        if not reader.caught_up.wait(READ_SECONDS):
            raise PipelineError(
                f"{TOPIC} was not read in {READ_SECONDS:g} s", "is the broker busy?"
            )
    value = found.get(name.encode())
    if value is None:
        return None
    alias: dict[str, Any] = json.loads(value)
    return alias


def _write_alias(bootstrap: str | Settings, sink: Topic, version: int) -> None:
    given = with_bootstrap(bootstrap)
    make_topics(admin_client(given), [NeededTopic(TOPIC, 1, must={"cleanup.policy": "compact"})])
    alias = {"topic": sink.output(version), "version": version}
    with Producer({"enable.idempotence": False, "linger.ms": 0, **given}) as producer:
        producer.send_and_wait(TOPIC, json.dumps(alias).encode(), key=sink.name.encode())


def _database(sink: Table) -> Any:
    from headrace.spark.pipelines.sql_batches import open_sql

    return open_sql(sink.url)


def _view_version(database: Database, connection: Any, sink: Table) -> int | None:
    from sqlalchemy import inspect

    looked = inspect(connection)
    if sink.name not in looked.get_view_names():
        if sink.name in looked.get_table_names():
            raise PipelineError(
                f"{sink.name} is a table, and the live version is to be a view of that name",
                "rename the table, or give the sink another name",
            )
        return None
    words = str(looked.get_view_definition(sink.name))
    for version in range(1, 10_000):
        if sink.output(version) in words.replace(";", " ").replace('"', " ").split():
            return version
    return None


def _change_view(sink: Table, version: int) -> None:
    with _database(sink) as database, database.connect() as connection:
        is_there = _view_version(database, connection, sink) is not None
        connection.rollback()
        quote = database.engine.dialect.identifier_preparer.quote
        with database.begin(connection, write=True):
            # Both databases change views within transactions: no reader finds none.
            view = f"VIEW {quote(sink.name)} AS SELECT * FROM {quote(sink.output(version))}"
            if is_there and database.kind == "postgresql":
                _replace_view(connection, sink.name, view)
                return
            if is_there:
                connection.exec_driver_sql(f"DROP VIEW {quote(sink.name)}")
            connection.exec_driver_sql(f"CREATE {view}")


def _replace_view(connection: Connection, name: str, view: str) -> None:
    """Change a view of PostgreSQL; who may read it may read it still."""
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError

    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"CREATE OR REPLACE {view}")
        return
    except DBAPIError:
        # It has other columns now, so the view is another.
        pass
    quote = connection.dialect.identifier_preparer.quote
    allowed = connection.execute(
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
            f"the view {name} has to change its columns, and cannot: {why}",
            "drop what stands on it first, and make it anew after the switch",
        ) from None
    connection.exec_driver_sql(f"CREATE {view}")
    for grantee, privilege in allowed:
        to = "PUBLIC" if grantee == "PUBLIC" else quote(grantee)
        connection.exec_driver_sql(f"GRANT {privilege} ON {quote(name)} TO {to}")


def _linked(sink: Folder) -> int | None:
    link = _local(sink) / LIVE_FOLDER
    if not link.is_symlink():
        return None
    return int(os.readlink(link).rstrip("/").rpartition("/v")[2].removeprefix("v"))


def _pointed(files: HadoopFiles, sink: Folder) -> int | None:
    known = files.read_text(f"{sink.place}/{POINTER}")
    return None if known is None else int(json.loads(known)["version"])


def _change_link(sink: Folder, version: int) -> None:
    folder = _local(sink)
    aside = folder / f".{LIVE_FOLDER}-{uuid.uuid4().hex}"
    aside.symlink_to(f"v{version}", target_is_directory=True)
    os.replace(aside, folder / LIVE_FOLDER)


def _local(sink: Folder) -> Path:
    return Path(sink.place.removeprefix("file://"))
