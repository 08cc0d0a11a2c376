"""A bug fix by replay: the new version computes everything again, beside the old output.

    headrace pipeline run pipeline_replay:revenue_before     (has run for months)
    headrace pipeline replay pipeline_replay:revenue --window 01:00-05:00 --rate 50000
    headrace pipeline compare pipeline_replay:revenue
    headrace pipeline switch pipeline_replay:revenue
    headrace pipeline drop pipeline_replay:revenue --version 1

Usually the code has only the newest version; here it has both, so that you can try them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Json, Table, pipeline

COMMON: dict[str, Any] = {
    "name": "revenue",
    "source": "sales",
    "sink": Table("sqlite:///revenue.db", "revenue", keys=["country"]),
    "value": Json("country STRING, amount DOUBLE, refunded BOOLEAN"),
    "output_mode": "update",
}


@pipeline(**COMMON, version=1)
def revenue_before(sales: DataFrame) -> DataFrame:
    # Refunds were counted as revenue.
    return sales.groupBy("country").agg(f.sum("amount").alias("revenue"))


@pipeline(**COMMON, version=2)
def revenue(sales: DataFrame) -> DataFrame:
    kept = sales.where("NOT coalesce(refunded, false)")
    return kept.groupBy("country").agg(f.sum("amount").alias("revenue"))
