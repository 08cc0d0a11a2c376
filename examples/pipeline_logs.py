"""Log lines of many machines as Parquet files, partitioned by day and level.

headrace pipeline run pipeline_logs
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Folder, pipeline

LINE = r"^(\S+) (\S+) (\w+) (.*)$"


@pipeline(source="log-lines", sink=Folder("logs", partition_by=["day", "level"]))
def logs(records: DataFrame) -> DataFrame:
    line = f.col("value").cast("string")
    return records.select(
        f.to_timestamp(f.regexp_extract(line, LINE, 1)).alias("at"),
        f.regexp_extract(line, LINE, 2).alias("machine"),
        f.regexp_extract(line, LINE, 4).alias("message"),
        f.substring(line, 1, 10).alias("day"),
        f.lower(f.regexp_extract(line, LINE, 3)).alias("level"),
    )
