"""Files wherever Spark has them: a folder of this machine, or any URL that Hadoop knows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(path: str) -> bool:
    """Whether only Hadoop reaches a path, which no folder of this machine is."""
    return "://" in path.removeprefix("file://")


@contextmanager
def opened_files() -> Iterator[HadoopFiles]:
    """Files through the session that runs here, or through one for this alone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headrace.spark.sessions import open_session

    # Not only that of this thread: it is not ours to stop.
    if SparkContext._active_spark_context is not None:
        yield HadoopFiles(SparkSession.builder.getOrCreate())
        return
    session = open_session("files", "local[1]", {})
    try:
        yield HadoopFiles(session)
    finally:
        session.stop()


class HadoopFiles:
    """Small files and folders, through the file systems of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._settings: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def read_text(self, path: str) -> str | None:
        """A file's text, or None if it is not there."""
        if not self.exists(path):
            return None
        system, place = self._at(path)
        opened = system.open(place)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(opened)
        finally:
            opened.close()
        return bytes(data).decode()

    def write_text(self, path: str, text: str) -> None:
        """Put a file in place of the old one at once; readers see the one or the other."""
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        system, place = self._at(temporary)
        opened = system.create(place, True)
        try:
            opened.write(bytearray(text.encode()))
            opened.hsync()
        finally:
            opened.close()
        self._rename(temporary, path, "OVERWRITE")

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        if not self.exists(folder):
            return []
        system, place = self._at(folder)
        return sorted(status.getPath().getName() for status in system.listStatus(place))

    def move(self, source: str, target: str) -> bool:
        """Give a folder its name; False, with nothing changed, if somebody has it already."""
        try:
            self._rename(source, target)
        except Py4JJavaError:
            if self.exists(target):
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it, if it is there."""
        system, place = self._at(path)
        system.delete(place, True)

    def _rename(self, source: str, target: str, *options: str) -> None:
        # Other than a file system's own, this rename never puts a folder into another.
        files = self._jvm.org.apache.hadoop.fs
        chosen = self._gateway.new_array(files.Options.Rename, len(options))
        for index, option in enumerate(options):
            chosen[index] = files.Options.Rename.valueOf(option)
        context = files.FileContext.getFileContext(self._place(target).toUri(), self._settings)
        context.rename(self._place(source), self._place(target), chosen)

    def _place(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._place(path)
        return place.getFileSystem(self._settings), place
