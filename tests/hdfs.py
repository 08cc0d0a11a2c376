"""Hadoop's file system itself, from Maven Central: one name node and one data node."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.apache_kafka import QUICK_JVM, free_ports
from tests.jars import jars_with_dependencies

VERSION = "3.4.1"
_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_START_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.2


@contextmanager
def hdfs() -> Iterator[str]:
    """The cluster that Hadoop has for tests, in one process: a folder that all may write to."""
    jars = jars_with_dependencies(
        ("org.apache.hadoop", "hadoop-minicluster", VERSION),
        ("junit", "junit", "4.13.2"),
        ("org.mockito", "mockito-core", "2.28.2"),
        # Maven would take the one that is named nearest, which is older than the others need.
        ("com.fasterxml.jackson.core", "jackson-core", "2.12.7"),
    )
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="headrace-hdfs-") as folder:
        command = ["java", *QUICK_JVM, "-Xmx512m", f"-Dhadoop.tmp.dir={folder}"]
        command += ["--add-opens=java.base/java.lang=ALL-UNNAMED"]
        command += ["-cp", os.pathsep.join(map(str, jars)), _MAIN]
        command += ["-nomr", "-format", "-nnhttpport", str(port)]
        command += ["-D", "dfs.permissions.enabled=false"]
        log = Path(folder, "log")
        with log.open("wb") as words:
            process = subprocess.Popen(command, cwd=folder, stdout=words, stderr=words)
        try:
            deadline = time.monotonic() + _START_SECONDS_MAX
            while not _takes_files(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"HDFS did not start: {log.read_text()[-2000:]}")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
            yield f"webhdfs://root@127.0.0.1:{port}/bodies"
        finally:
            process.kill()
            process.wait()


def _takes_files(port: int) -> bool:
    """Whether the name node has a data node, and has left its safe mode."""
    bean = "Hadoop:service=NameNode,name=NameNodeInfo"
    try:
        with urlopen(f"http://127.0.0.1:{port}/jmx?qry={bean}", timeout=5) as answer:
            text: str = answer.read().decode()
    except (URLError, OSError):
        return False
    return '"Safemode" : ""' in text and "lastContact" in text
