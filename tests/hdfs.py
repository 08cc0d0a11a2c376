"""Hadoop's file system itself, from Maven Central: one name node and one data node."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from tests.apache_kafka import QUICK_JVM, free_ports
from tests.jars import jars_with_dependencies

VERSION = "3.4.1"
_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_START_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.2


class Hdfs:
    """The cluster that Hadoop has for tests, in one process; a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-hdfs-")
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """A folder of it that everybody may write to."""
        return f"webhdfs://root@127.0.0.1:{self._port}/bodies"

    def __enter__(self) -> Self:
        jars = jars_with_dependencies(
            ("org.apache.hadoop", "hadoop-minicluster", VERSION),
            ("junit", "junit", "4.13.2"),
            ("org.mockito", "mockito-core", "2.28.2"),
            # Maven would take the one that is named nearest, which is older than the others need.
            ("com.fasterxml.jackson.core", "jackson-core", "2.12.7"),
        )
        command = ["java", *QUICK_JVM, "-Xmx512m", f"-Dhadoop.tmp.dir={self._folder.name}"]
        command += ["--add-opens=java.base/java.lang=ALL-UNNAMED"]
        command += ["-cp", os.pathsep.join(map(str, jars)), _MAIN]
        command += ["-nomr", "-format", "-nnhttpport", str(self._port)]
        command += ["-D", "dfs.permissions.enabled=false"]
        log = Path(self._folder.name, "log")
        with log.open("wb") as words:
            self._process = subprocess.Popen(
                command, cwd=self._folder.name, stdout=words, stderr=words
            )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._takes_files():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"HDFS did not start: {log.read_text()[-2000:]}")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _takes_files(self) -> bool:
        """Whether the name node has a data node, and has left its safe mode."""
        bean = "Hadoop:service=NameNode,name=NameNodeInfo"
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/jmx?qry={bean}", timeout=5) as answer:
                text: str = answer.read().decode()
        except (URLError, OSError):
            return False
        return '"Safemode" : ""' in text and "lastContact" in text
