"""Spark sessions for pipelines: on this machine unless a master is named.

They are set so that Spark's Python processes start and answer quickly; docs/spark.md says how.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from headrace.spark.errors import PipelineError
from headrace.spark.light_home import light_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All cores; a task whose Python process died is tried again, as on a cluster.
LOCAL = "local[*,4]"
PYTHON = "spark.pyspark.python"


def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with Headrace's format registered, the running one if there is one.

    PipelineError if Spark or Java is missing.
    """
    try:
        from pyspark import SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise PipelineError(
            "pipelines need PySpark, which is not installed", "pip install 'headrace[spark]'"
        ) from None
    from headrace.spark import register

    if SparkContext._active_spark_context is not None:
        # What runs here already is not ours to change.
        session = SparkSession.builder.getOrCreate()
        register(session)
        return session
    master, settings = master or LOCAL, settings or {}
    # Tasks run on this Python unless told otherwise; Spark itself takes the first on the path.
    python = settings.get(PYTHON, sys.executable)
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }
    home: AbstractContextManager[None] = nullcontext()
    if master.startswith("local"):
        defaults["spark.driver.host"] = defaults["spark.driver.bindAddress"] = "127.0.0.1"
        if os.name == "posix":
            # Over TCP an answer waits 40 ms for an acknowledgement that is put off.
            defaults["spark.python.unix.domain.socket.enabled"] = "true"
        if python == sys.executable:
            home = light_home()
    builder = SparkSession.builder.appName(f"headrace {name}").master(master)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
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
    # That of a session which is over is of no use to this one.
    of_spark = getattr(before, "__module__", "").startswith("pyspark.")
    is_given = before not in (None, signal.default_int_handler) and not of_spark
    try:
        yield
    finally:
        if is_given and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def activate(spark: SparkSession) -> None:
    """Make a session that of this thread: without one, Spark does not find formats in Python."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
