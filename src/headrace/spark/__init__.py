"""Topics in Spark without a jar: a source and a sink on Arrow, and pipelines.

`data_source.py` is `format("headrace")`, which reads with `source/` and writes with `sink/`;
`connection.py` reads the options that both share. `sessions.py` opens Spark sessions, and
`pipelines/` runs functions from events to rows on them, exactly once and with replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.spark.data_source import HeadraceSource as HeadraceSource
    from headrace.spark.data_source import register as register
    from headrace.spark.errors import DataLoss as DataLoss
    from headrace.spark.errors import OptionError as OptionError
    from headrace.spark.errors import PipelineError as PipelineError
    from headrace.spark.errors import SinkError as SinkError
    from headrace.spark.errors import SourceUnreachable as SourceUnreachable
    from headrace.spark.pipelines.aliases import live_folder as live_folder
    from headrace.spark.pipelines.aliases import live_topic as live_topic
    from headrace.spark.pipelines.avro import Avro as Avro
    from headrace.spark.pipelines.definitions import Pipeline as Pipeline
    from headrace.spark.pipelines.definitions import Source as Source
    from headrace.spark.pipelines.definitions import pipeline as pipeline
    from headrace.spark.pipelines.frames import latest_by_key as latest_by_key
    from headrace.spark.pipelines.parquet_batches import into_parquet as into_parquet
    from headrace.spark.pipelines.protobuf import Protobuf as Protobuf
    from headrace.spark.pipelines.sinks import Folder as Folder
    from headrace.spark.pipelines.sinks import Table as Table
    from headrace.spark.pipelines.sinks import Topic as Topic
    from headrace.spark.pipelines.sql_batches import into_sql as into_sql
    from headrace.spark.pipelines.topic_batches import exactly_once as exactly_once
    from headrace.spark.pipelines.values import Json as Json
    from headrace.spark.pipelines.values import Msgpack as Msgpack
    from headrace.spark.sessions import open_session as open_session
    from headrace.spark.source.lags import Lag as Lag
    from headrace.spark.source.lags import lag as lag
else:
    _get, __dir__ = lazy_names(
        __name__,
        data_source="HeadraceSource register",
        errors="DataLoss OptionError PipelineError SinkError SourceUnreachable",
        pipelines__aliases="live_folder live_topic",
        pipelines__avro="Avro",
        pipelines__definitions="Pipeline Source pipeline",
        pipelines__frames="latest_by_key",
        pipelines__parquet_batches="into_parquet",
        pipelines__topic_batches="exactly_once",
        pipelines__protobuf="Protobuf",
        pipelines__sinks="Folder Table Topic",
        pipelines__sql_batches="into_sql",
        pipelines__values="Json Msgpack",
        sessions="open_session",
        source__lags="Lag lag",
    )
    _NEEDS = ("pyspark", "pyarrow", "numpy", "pandas")

    def __getattr__(name: str) -> object:
        # Spark is large, so it is an extra, and these names are imported on first use.
        try:
            return _get(name)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] not in _NEEDS:
                raise
            from headrace.spark.errors import missing_extra

            raise missing_extra(missing.name) from None
