"""Batches into folders of Parquet files, each folder named at once when it is whole: exactly once.

    query = df.writeStream.foreachBatch(into_parquet("/data/clicks", partition_by=["day"]))

`spark.read.parquet("/data/clicks")` reads all batches; their number is a column, `batch`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.pipelines.batch_ids import pass_over, query_of
from headrace.spark.pipelines.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ForeachBatch = Callable[["DataFrame", int], None]

# Names that begin so are not read by Spark.
OWNER = "_headrace.json"
UNFINISHED = "_unfinished"
COLUMN = "batch"


def into_parquet(
    folder: str, *, partition_by: Sequence[str] = (), name: str | None = None
) -> ForeachBatch:
    """A function for `foreachBatch` that writes each batch once, as `folder/batch=ID`.

    A batch is written aside and then renamed, so the file system has to rename folders at once:
    local ones and HDFS do, S3-like stores do not. `name` says who writes, in place of the query's
    id, which a new checkpoint changes; a folder belongs to one writer.
    """

    def write(rows: DataFrame, batch: int) -> None:
        if COLUMN in rows.columns:
            raise SinkError(
                f"a column {COLUMN!r} would be hidden by the number of the batch", "rename it"
            )
        writer = name or query_of(rows)
        files = HadoopFiles(rows.sparkSession)
        _own(files, folder, writer)
        target = f"{folder}/{folder_name(batch)}"
        if files.exists(target):
            pass_over(rows)
            return
        _check_newest(files, folder, batch)
        aside = f"{folder}/{UNFINISHED}/{batch}-{uuid.uuid4().hex}"
        writing = rows.write.mode("error")
        if partition_by:
            writing = writing.partitionBy(*partition_by)
        writing.parquet(aside)
        # A zombie that is renamed first has written the same rows: either will do.
        if not files.move(aside, target) and not files.exists(target):
            raise SinkError(f"{aside} cannot be renamed to {target}", "may the user write there?")
        files.remove(f"{folder}/{UNFINISHED}")

    return write


def folder_name(batch: int) -> str:
    """The folder of a batch; a column of the table, in Hive's manner."""
    return f"{COLUMN}={batch}"


def _check_newest(files: HadoopFiles, folder: str, batch: int) -> None:
    numbers = [name.removeprefix(f"{COLUMN}=") for name in files.names(folder)]
    newest = max((int(number) for number in numbers if number.isdigit()), default=-1)
    if newest > batch:
        raise CheckpointTooOld(
            f"{folder} already holds batch {newest}, and the checkpoint is at batch {batch}",
            "restore the newest checkpoint, or start with a new checkpoint and a new folder",
        )


def _own(files: HadoopFiles, folder: str, writer: str) -> None:
    """Enter the writer of a folder; SinkError if it has another."""
    path = f"{folder}/{OWNER}"
    known = files.read_text(path)
    if known is None:
        files.write_text(path, json.dumps({"writer": writer}))
    elif json.loads(known).get("writer") != writer:
        raise SinkError(
            f"{folder} holds the batches of another query, {json.loads(known).get('writer')}",
            "use a new folder, or the checkpoint that belongs to this one",
        )
