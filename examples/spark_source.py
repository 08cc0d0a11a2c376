"""A topic in Spark, as a table and as a stream: python examples/spark_source.py."""

from __future__ import annotations

import sys
import tempfile

from headrace.client import Producer
from headrace.spark import lag, open_session

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with Producer(bootstrap) as producer:
    for number in range(100):
        producer.send("clicks", f"page-{number % 3}", key=f"user-{number % 7}")

spark = open_session("clicks", "local[2]")

clicks = (
    spark.read.format("headrace")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "clicks")
    .load()
)
pages = clicks.groupBy(clicks.value.cast("string").alias("page")).count().orderBy("page")
print({row["page"]: row["count"] for row in pages.collect()})

stream = (
    spark.readStream.format("headrace")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "clicks")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 40)
    .option("columns", "value")  # decode only what the query needs
    .option("group", "spark-clicks")  # the query's name for lag tools and alarms
    .load()
)
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        stream.writeStream.foreachBatch(lambda frame, number: print(number, frame.count()))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
print([found.records for progress in query.recentProgress if (found := lag(progress))])
spark.stop()
