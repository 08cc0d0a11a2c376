"""Files and folders on this machine or at any Hadoop URL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(path: str) -> bool:
    """Whether a path is a Hadoop URL and not a folder of this machine."""
    return "://" in path.removeprefix("file://")


@contextmanager
def opened_files() -> Iterator[HadoopFiles]:
    """Files through the running session, or through a temporary one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headrace.spark.sessions import open_session

    # A session of another thread is used too, and never stopped here.
    if SparkContext._active_spark_context is not None:
        yield HadoopFiles(SparkSession.builder.getOrCreate())
        return
    session = open_session("files", "local[1]", {})
    try:
        yield HadoopFiles(session)
    finally:
        session.stop()


class HadoopFiles:
    """Reads and writes small files and folders through a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._settings: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        system, location = self._at(path)
        return bool(system.exists(location))

    def read_text(self, path: str) -> str | None:
        """A file's text, or None if it does not exist."""
        if not self.exists(path):
            return None
        system, location = self._at(path)
        opened = system.open(location)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(opened)
        finally:
            opened.close()
        return bytes(data).decode()

    def write_text(self, path: str, text: str) -> None:
        """Replace a file atomically: readers see the old text or the new one."""
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        system, location = self._at(temporary)
        opened = system.create(location, True)
        try:
            opened.write(bytearray(text.encode()))
            opened.hsync()
        finally:
            opened.close()
        self._rename(temporary, path, "OVERWRITE")

    def names(self, folder: str) -> list[str]:
        """The names in a folder; an empty list if it does not exist."""
        if not self.exists(folder):
            return []
        system, location = self._at(folder)
        return sorted(status.getPath().getName() for status in system.listStatus(location))

    def move(self, source: str, target: str) -> bool:
        """Rename a folder; False, with nothing changed, if the target exists."""
        try:
            self._rename(source, target)
        except Py4JJavaError:
            if self.exists(target):
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        system, location = self._at(path)
        system.delete(location, True)

    def _rename(self, source: str, target: str, *options: str) -> None:
        # Unlike FileSystem.rename, this one never moves a folder into an existing one.
        files = self._jvm.org.apache.hadoop.fs
        chosen = self._gateway.new_array(files.Options.Rename, len(options))
        for index, option in enumerate(options):
            chosen[index] = files.Options.Rename.valueOf(option)
        context = files.FileContext.getFileContext(self._path(target).toUri(), self._settings)
        context.rename(self._path(source), self._path(target), chosen)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _at(self, path: str) -> tuple[Any, Any]:
        location = self._path(path)
        return location.getFileSystem(self._settings), location
