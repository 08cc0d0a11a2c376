"""Pipelines: functions from events to rows that run exactly once, for months, with replay.

Users write `definitions.py`, with `sinks.py` and `values.py` (`avro.py`, `protobuf.py`).
`launcher.py` opens Spark and lets `runner.py` start the queries of `queries.py`, at the pace of
`pacing.py`. A query reads events and makes rows of them in `frames.py`, and writes them exactly
once through `topic_batches.py` (with `plans.py`), `sql_batches.py` (`sql_tables.py`) or
`parquet_batches.py`. `version_folder.py` has the state of a version and `progress.py` how far it
is. `versions.py` stops, switches and drops versions, with `comparison.py`, `aliases.py` and
`outputs.py`; `foreach_batch.py` and `hadoop_files.py` are Spark's own batches and files.
"""
