"""Writes batches to Parquet folders exactly once: each folder is renamed when it is complete.

    query = df.writeStream.foreachBatch(into_parquet("/data/clicks", partition_by=["day"]))

`spark.read.parquet("/data/clicks")` reads all batches, with their number as the column `batch`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.pipelines.foreach_batch import ForeachBatch, query_of, skip_batch
from headrace.spark.pipelines.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark ignores names that begin with an underscore.
OWNER_FILE = "_headrace.json"
UNFINISHED = "_unfinished"
COLUMN = "batch"


def into_parquet(
    folder: str, *, partition_by: Sequence[str] = (), name: str | None = None
) -> ForeachBatch:
    """A function for `foreachBatch` that writes each batch once, as `folder/batch=ID`.

    A batch is written aside and then renamed, so the file system has to rename folders atomically:
    local ones and HDFS do, S3-like stores do not. A folder belongs to one writer: `name`, or the
    query's id, which changes with a new checkpoint.
    """

    def write(rows: DataFrame, batch: int) -> None:
        if COLUMN in rows.columns:
            raise SinkError(
                f"the column {COLUMN!r} is reserved for the number of the batch", "rename it"
            )
        writer = name or query_of(rows)
        files = HadoopFiles(rows.sparkSession)
        _claim(files, folder, writer)
        target = f"{folder}/{folder_name(batch)}"
        if files.exists(target):
            skip_batch(rows)
            return
        _check_newest(files, folder, batch)
        aside = f"{folder}/{UNFINISHED}/{batch}-{uuid.uuid4().hex}"
        job = rows.write.mode("error")
        if partition_by:
            job = job.partitionBy(*partition_by)
        job.parquet(aside)
        # An older attempt that renames first has written the same rows: either is fine.
        if not files.move(aside, target) and not files.exists(target):
            raise SinkError(f"{aside} cannot be renamed to {target}", "check the permissions")
        files.remove(f"{folder}/{UNFINISHED}")

    return write


def folder_name(batch: int) -> str:
    """The folder of a batch, named so that Spark reads its number as a partition column."""
    return f"{COLUMN}={batch}"


def _check_newest(files: HadoopFiles, folder: str, batch: int) -> None:
    numbers = [name.removeprefix(f"{COLUMN}=") for name in files.names(folder)]
    newest = max((int(number) for number in numbers if number.isdigit()), default=-1)
    if newest > batch:
        raise CheckpointTooOld(
            f"{folder} already holds batch {newest}, and the checkpoint is at batch {batch}",
            "restore the newest checkpoint, or start with a new checkpoint and a new folder",
        )


def _claim(files: HadoopFiles, folder: str, writer: str) -> None:
    """Record the writer of a folder; SinkError if it has another."""
    path = f"{folder}/{OWNER_FILE}"
    known = files.read_text(path)
    if known is None:
        files.write_text(path, json.dumps({"writer": writer}))
    elif json.loads(known).get("writer") != writer:
        raise SinkError(
            f"{folder} holds the batches of another query, {json.loads(known).get('writer')}",
            "use a new folder, or the checkpoint that wrote this one",
        )
