"""Visits: page views of a user without a gap of five minutes become one row of a table.

    headrace pipeline run pipeline_sessions

A visit is written once, when the watermark has passed its end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Json, Table, pipeline


@pipeline(
    source="page-views",
    sink=Table("sqlite:///visits.db", "visits", keys=["user", "began"]),
    value=Json("user STRING NOT NULL, page STRING, at TIMESTAMP"),
    watermark=("at", "1 minute"),
)
def visits(views: DataFrame) -> DataFrame:
    session = f.session_window("at", "5 minutes")
    found = views.groupBy("user", session).agg(f.count("page").alias("pages"))
    return found.select(
        "user",
        f.col("session_window.start").alias("began"),
        f.col("session_window.end").alias("ended"),
        "pages",
    )
