"""Spark sessions for pipelines: on this machine unless a master is named.

They are set so that Spark's Python processes start and answer quickly; docs/spark.md says how.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headrace.spark.light_home import light_home
from headrace.spark.pipeline_errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All cores; a task whose Python process died is tried again, as on a cluster.
LOCAL = "local[*,4]"
PYTHON = "spark.pyspark.python"


def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
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
    master, settings = master or LOCAL, settings or {}
    is_local = master.startswith("local")
    # Tasks run on this Python unless told otherwise; Spark itself takes the first on the path.
    python = settings.get(PYTHON, sys.executable)
    if is_local:
        defaults["spark.driver.host"] = defaults["spark.driver.bindAddress"] = "127.0.0.1"
        defaults[PYTHON] = python
    if os.name == "posix":
        # Over TCP an answer waits 40 ms for an acknowledgement that is put off.
        defaults["spark.python.unix.domain.socket.enabled"] = "true"
    builder = SparkSession.builder.appName(f"headrace {name}").master(master)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
        home = light_home() if is_local and python == sys.executable else nullcontext()
        with home, _keeping_interrupts():
            session = builder.getOrCreate()
    except PySparkRuntimeError as problem:
        raise PipelineError(
            f"Spark does not start: {str(problem).strip().splitlines()[0]}",
            "it needs Java 17 or later: headrace doctor",
        ) from None
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.pythonExec = python
    register(session)
    return session


@contextmanager
def _keeping_interrupts() -> Iterator[None]:
    """Who has said what Ctrl-C does keeps it; Spark takes it, to cancel its jobs and interrupt."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before not in (signal.default_int_handler, signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, before)


def activate(spark: SparkSession) -> None:
    """Make a session that of this thread: without one, Spark does not find formats in Python."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
