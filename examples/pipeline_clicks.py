"""Clicks per page and minute: filtered, transformed, and counted by event time.

    headrace pipeline run pipeline_clicks

A count changes while clicks of its minute arrive; each time it is written with the same key.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Json, Topic, pipeline


@pipeline(
    source="clicks",
    sink=Topic("clicks_per_minute", key=["page", "minute"]),
    value=Json("user STRING NOT NULL, page STRING, at TIMESTAMP"),
    watermark=("at", "10 minutes"),
    output_mode="update",
)
def clicks_per_minute(clicks: DataFrame) -> DataFrame:
    pages = clicks.where("page NOT LIKE '/admin%'").withColumn("page", f.lower("page"))
    counts = pages.groupBy(f.window("at", "1 minute"), "page").count()
    return counts.select("page", f.col("window.start").alias("minute"), "count")
