"""Topics for Spark without a jar: a source and sink on Arrow, and pipelines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.spark.aliases import live_folder, live_topic
    from headrace.spark.definitions import Pipeline, Source, pipeline
    from headrace.spark.errors import DataLoss, OptionError, SourceUnreachable
    from headrace.spark.frames import latest_by_key
    from headrace.spark.lags import Lag, lag
    from headrace.spark.parquet_batches import into_parquet
    from headrace.spark.pins import exactly_once
    from headrace.spark.pipeline_errors import PipelineError, SinkError
    from headrace.spark.sessions import open_session
    from headrace.spark.sinks import Folder, Table, Topic
    from headrace.spark.source import HeadraceSource, register
    from headrace.spark.sql_batches import into_sql
    from headrace.spark.values import Avro, Json, Msgpack, Protobuf

__all__ = [
    "Avro",
    "DataLoss",
    "Folder",
    "HeadraceSource",
    "Json",
    "Lag",
    "Msgpack",
    "OptionError",
    "Pipeline",
    "PipelineError",
    "Protobuf",
    "SinkError",
    "Source",
    "SourceUnreachable",
    "Table",
    "Topic",
    "exactly_once",
    "into_parquet",
    "into_sql",
    "lag",
    "latest_by_key",
    "live_folder",
    "live_topic",
    "open_session",
    "pipeline",
    "register",
]

_HOMES = {
    "Avro": "headrace.spark.values",
    "DataLoss": "headrace.spark.errors",
    "Folder": "headrace.spark.sinks",
    "HeadraceSource": "headrace.spark.source",
    "Json": "headrace.spark.values",
    "Lag": "headrace.spark.lags",
    "Msgpack": "headrace.spark.values",
    "OptionError": "headrace.spark.errors",
    "Pipeline": "headrace.spark.definitions",
    "PipelineError": "headrace.spark.pipeline_errors",
    "Protobuf": "headrace.spark.values",
    "SinkError": "headrace.spark.pipeline_errors",
    "Source": "headrace.spark.definitions",
    "SourceUnreachable": "headrace.spark.errors",
    "Table": "headrace.spark.sinks",
    "Topic": "headrace.spark.sinks",
    "exactly_once": "headrace.spark.pins",
    "into_parquet": "headrace.spark.parquet_batches",
    "into_sql": "headrace.spark.sql_batches",
    "lag": "headrace.spark.lags",
    "latest_by_key": "headrace.spark.frames",
    "live_folder": "headrace.spark.aliases",
    "live_topic": "headrace.spark.aliases",
    "open_session": "headrace.spark.sessions",
    "pipeline": "headrace.spark.definitions",
    "register": "headrace.spark.source",
}
_NEEDS = ("pyspark", "pyarrow", "numpy", "pandas")


def __getattr__(name: str) -> object:
    # Spark is large, and only those who ask for it need to have it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDS:
            raise
        from headrace.spark.errors import missing_extra

        raise missing_extra(missing.name) from None
