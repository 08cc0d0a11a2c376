"""A topic copied exactly once, with keys and headers, even if processes are killed.

headrace pipeline run pipeline_copy
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headrace.spark import pipeline


@pipeline(source="payments", sink="payments-copy", options={"includeHeaders": "true"})
def copy_payments(records: DataFrame) -> DataFrame:
    return records.select("key", "value", "headers")
