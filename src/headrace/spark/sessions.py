"""Spark sessions for pipelines: on this machine unless a master is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.spark.pipeline_errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All cores; a task whose Python process died is tried again, as on a cluster.
LOCAL = "local[*,4]"


def open_session(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """A session with Headrace's format registered; PipelineError if Spark or Java is missing."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise PipelineError(
            "pipelines need PySpark, which is not installed", "pip install 'headrace[spark]'"
        ) from None
    from headrace.spark import register

    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }
    if not master or master.startswith("local"):
        defaults["spark.driver.host"] = defaults["spark.driver.bindAddress"] = "127.0.0.1"
    builder = SparkSession.builder.appName(f"headrace {name}").master(master or LOCAL)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as problem:
        raise PipelineError(
            f"Spark does not start: {str(problem).strip().splitlines()[0]}",
            "it needs Java 17 or later: headrace doctor",
        ) from None
    session.sparkContext.setLogLevel("ERROR")
    # Tasks run on this Python unless told otherwise; Spark itself takes the first on the path.
    python = settings.get("spark.pyspark.python", sys.executable)
    session.sparkContext.pythonExec = python
    register(session)
    return session


def activate(spark: SparkSession) -> None:
    """Make a session that of this thread: without one, Spark does not find formats in Python."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
