"""Outputs of pipelines in their sinks: created, looked up and dropped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.admin.topics import NeededTopic, admin_client, create_topics
from headrace.client.dead_letters import topic_of
from headrace.client.settings import common_settings
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.hadoop_files import is_remote, opened_files
from headrace.spark.pipelines.sinks import Sink, Table, Topic
from headrace.spark.pipelines.sql_batches import open_sql

if TYPE_CHECKING:
    from headrace.spark.pipelines.definitions import Pipeline

ADMIN_SECONDS = 30.0


def make_topics(pipeline: Pipeline, settings: Mapping[str, str]) -> None:
    """Create the topics that a pipeline writes to, with as many partitions as its sources have.

    PipelineError if a source does not exist.
    """
    from confluent_kafka import KafkaException

    admin = admin_client(common_settings(settings))
    known = admin.list_topics(timeout=ADMIN_SECONDS).topics
    missing = [each.topic for each in pipeline.sources.values() if each.topic not in known]
    if missing:
        raise PipelineError(
            f"there is no topic {missing[0]!r}", f"headrace topic create {missing[0]}"
        )
    partitions = max(
        len(known[each.topic].partitions) for each in pipeline.sources.values() if not each.latest
    )
    wanted = {}
    if isinstance(pipeline.sink, Topic):
        wanted[pipeline.sink.output(pipeline.version)] = partitions
    for each in pipeline.sources.values():
        if each.value is not None:
            wanted.setdefault(pipeline.dead_letters or topic_of(each.topic), 1)
    new = [NeededTopic(name, count) for name, count in wanted.items() if name not in known]
    try:
        create_topics(admin, new)
    except KafkaException as problem:
        names = ", ".join(each.name for each in new)
        raise PipelineError(
            f"{names} cannot be created: {problem}", "create it: headrace topic create"
        ) from None


def output_exists(sink: Sink, version: int, settings: Mapping[str, str]) -> bool:
    """Whether a version has an output."""
    output = sink.output(version)
    if isinstance(sink, Topic):
        return output in admin_client(settings).list_topics(timeout=ADMIN_SECONDS).topics
    if isinstance(sink, Table):
        from sqlalchemy import inspect

        with open_sql(sink.url) as database, database.connect() as connection:
            return bool(inspect(connection).has_table(output))
    if is_remote(output):
        with opened_files() as files:
            return files.exists(output)
    return Path(output.removeprefix("file://")).is_dir()


def drop_output(sink: Sink, version: int, settings: Mapping[str, str]) -> None:
    """Delete the output of a version, if it exists."""
    if not output_exists(sink, version, settings):
        return
    output = sink.output(version)
    if isinstance(sink, Topic):
        admin = admin_client(settings)
        admin.delete_topics([output])[output].result(ADMIN_SECONDS)
    elif isinstance(sink, Table):
        with open_sql(sink.url) as database, database.connect() as connection:
            quote = database.engine.dialect.identifier_preparer.quote
            with database.begin(connection, write=True):
                connection.exec_driver_sql(f"DROP TABLE {quote(output)}")
    else:
        remove_folder(output)


def remove_folder(path: str) -> None:
    """Remove a folder of this machine or at a Hadoop URL, if it exists."""
    if is_remote(path):
        with opened_files() as files:
            files.remove(path)
    else:
        shutil.rmtree(path.removeprefix("file://"), ignore_errors=True)
