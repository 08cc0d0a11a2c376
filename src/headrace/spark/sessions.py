"""Spark sessions whose Python processes start and answer quickly; docs/spark.md has the reasons."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.config import environment
from headrace.spark.errors import EXTRA, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All cores; a task whose Python process died is tried again, as on a cluster.
LOCAL = "local[*,4]"
PYTHON = "spark.pyspark.python"

# What Spark's home must have, and what it may have. Its `python` folder, with the zip, is left out.
HOME_FOLDERS = ("bin", "jars", "sbin")
CONFIG_FOLDER = "conf"

_are_objects_frozen = False


def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with Headrace's format registered; the running one if there is one.

    PipelineError if Spark or Java is missing.
    """
    try:
        from pyspark import SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise PipelineError("pipelines need PySpark, which is not installed", EXTRA) from None
    from headrace.spark.data_source import register

    if SparkContext._active_spark_context is not None:
        # A session that runs already keeps its settings.
        session = SparkSession.builder.getOrCreate()
        register(session)
        return session
    master, settings = master or LOCAL, settings or {}
    # Tasks run on this Python unless configured; Spark by itself takes the first on the path.
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
            # Over TCP an answer waits 40 ms for a delayed acknowledgement.
            defaults["spark.python.unix.domain.socket.enabled"] = "true"
        if python == sys.executable:
            home = home_without_zip()
    builder = SparkSession.builder.appName(f"headrace {name}").master(master)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
        with home, _keeping_sigint_handler():
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


def activate(spark: SparkSession) -> None:
    """Make a session this thread's own; without one, Spark does not find formats in Python."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)


def freeze_loaded_objects() -> None:
    """In a worker's first task, exempt all that it has loaded from garbage collection.

    Spark runs a full collection after each task. With Arrow, numba and pandas loaded, that takes
    longer than a small task.
    """
    global _are_objects_frozen
    if _are_objects_frozen:
        return
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _are_objects_frozen = True
        gc.collect()
        gc.freeze()


def home_without_zip() -> AbstractContextManager[None]:
    """Within it, SPARK_HOME leaves out Spark's own zip of PySpark, unless the user has set one.

    Spark puts that zip first on the path of each Python process. Python caches no bytecode from a
    zip, so each process would spend a second compiling the PySpark that pip has installed as well.
    """
    if environment.spark_home() or os.name != "posix":
        return nullcontext()
    try:
        return environment.with_spark_home(_make_home())
    except (OSError, RuntimeError):
        # Without a cache folder that only this user can write to, Spark just starts more slowly.
        return nullcontext()


def _make_home() -> Path:
    """A folder of links into the PySpark that pip installed; OSError if it cannot be made."""
    from pyspark.find_spark_home import _find_spark_home

    package = Path(_find_spark_home())
    # It is never removed: Java opens the jars through the links whenever it needs one.
    home = environment.cache_dir() / f"spark-{sha256(bytes(package)).hexdigest()[:16]}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.stat()
    # Programs are run from it.
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{home} can be written to by other users")
    for folder in HOME_FOLDERS:
        _link(home / folder, package / folder)
    if (package / CONFIG_FOLDER).is_dir():
        _link(home / CONFIG_FOLDER, package / CONFIG_FOLDER)
    return home


def _link(link: Path, target: Path) -> None:
    """Make a link unless it exists; safe against other processes that do the same."""
    target.stat()
    if link.is_symlink() and link.readlink() == target:
        return
    draft = link.with_name(f"{link.name}-{uuid4().hex}")
    draft.symlink_to(target)
    draft.replace(link)


@contextmanager
def _keeping_sigint_handler() -> Iterator[None]:
    """Restore the application's handler for Ctrl-C, which Spark replaces with its own."""
    before = signal.getsignal(signal.SIGINT)
    # The handler of an earlier Spark session is of no use to this one.
    is_spark = getattr(before, "__module__", "").startswith("pyspark.")
    is_application = before not in (None, signal.default_int_handler) and not is_spark
    try:
        yield
    finally:
        if is_application and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
