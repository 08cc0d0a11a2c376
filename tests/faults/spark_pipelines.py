"""The pipelines that are killed: every kind of sink, without state and with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.clusters import SETTINGS

from headrace.spark import Folder, Pipeline, Table, Topic, pipeline
from headrace.spark.pipelines.outputs import make_topics
from headrace.spark.pipelines.queries import QuerySettings
from headrace.spark.pipelines.runner import Runner
from headrace.spark.pipelines.version_folder import VersionFolder
from headrace.spark.sessions import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "numbers"
KEYS = 10
DATABASE = "sqlite:///rows.db"
# A batch is small, so that there are many to be killed in.
OPTIONS = {"maxOffsetsPerTrigger": "2000"}
APART = 3000


def parsed(records: DataFrame) -> DataFrame:
    """The numbers; without a schema there are no queries for dead letters to be killed as well."""
    from pyspark.sql import functions as f

    value = f.from_json(f.col("value").cast("string"), "n BIGINT, k INT")
    return records.select(value.alias("of")).select("of.*")


@pipeline(source=SOURCE, sink=Topic("copied", key="k"), options=OPTIONS, tasks=2)
def copied(records: DataFrame) -> DataFrame:
    return parsed(records).select("n", "k")


@pipeline(
    source=SOURCE,
    sink=Topic("counted", key="k"),
    options=OPTIONS,
    tasks=2,
    output_mode="update",
)
def counted(records: DataFrame) -> DataFrame:
    return parsed(records).groupBy("k").count()


@pipeline(source=SOURCE, sink=Table(DATABASE, "listed"), options=OPTIONS)
def listed(records: DataFrame) -> DataFrame:
    return parsed(records).select("n", "k")


@pipeline(
    source=SOURCE,
    sink=Table(DATABASE, "summed", keys=["k"]),
    options=OPTIONS,
    output_mode="update",
)
def summed(records: DataFrame) -> DataFrame:
    return parsed(records).groupBy("k").agg({"n": "sum"}).withColumnRenamed("sum(n)", "total")


@pipeline(source=SOURCE, sink=Folder("kept", partition_by=["k"]), options=OPTIONS)
def kept(records: DataFrame) -> DataFrame:
    return parsed(records).select("n", "k")


@pipeline(source=SOURCE, sink=Folder("once"), options=OPTIONS)
def once(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    # Every number comes a second time, in a later batch: only the state knows of the first.
    twice = f.explode(f.array(f.col("n"), f.col("n") - APART)).alias("n")
    return parsed(records).select(twice).where("n >= 0").dropDuplicates(["n"])


ALL: dict[str, Pipeline] = {
    each.name: each for each in (copied, counted, listed, summed, kept, once)
}


def main() -> None:
    """Run pipelines in one process until SIGTERM: BOOTSTRAP MASTER NAME..."""
    bootstrap, master, *names = sys.argv[1:]
    spark = open_session("faults", master, {"spark.driver.memory": "1g", **SETTINGS})
    runners = []
    for name in names:
        make_topics(ALL[name], {"bootstrap.servers": bootstrap})
        folder = VersionFolder(Path("home"), name, 1)
        settings = QuerySettings(bootstrap, folder.checkpoint)
        runners.append(Runner(ALL[name], settings, folder))

    def stop(*_: object) -> None:
        for runner in runners:
            runner.request_stop()

    signal.signal(signal.SIGTERM, stop)

    def run(runner: Runner) -> None:
        try:
            runner.run(spark)
        except BaseException as problem:
            # One that cannot go on ends all: the world starts them again.
            print(problem, file=sys.stderr, flush=True)
            os._exit(1)

    threads = [threading.Thread(target=run, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()


if __name__ == "__main__":
    main()
