"""Two streams joined: the ads that were clicked within ten minutes of being shown.

headrace pipeline run pipeline_join
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Json, Source, Topic, pipeline


@pipeline(
    source={
        "shown": Source(
            "ads-shown", Json("ad STRING, site STRING, at TIMESTAMP"), ("at", "1 hour")
        ),
        "clicked": Source("ads-clicked", Json("ad STRING, at TIMESTAMP"), ("at", "1 hour")),
    },
    sink=Topic("ads-effective", key="ad"),
)
def effective_ads(shown: DataFrame, clicked: DataFrame) -> DataFrame:
    one, other = shown.alias("shown"), clicked.alias("clicked")
    soon = f.expr("clicked.at BETWEEN shown.at AND shown.at + INTERVAL 10 MINUTES")
    joined = one.join(other, (f.col("shown.ad") == f.col("clicked.ad")) & soon)
    return joined.select("shown.ad", "shown.site", f.col("clicked.at").alias("clicked_at"))
