"""Source, sink and pipelines on Spark 4.1, which has neither admission control nor the end of
available data."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jars import CACHE

ROOT = Path(__file__).parents[2]
WANTED = "pyspark>=4.1,<4.2"
TIMEOUT_SECONDS = 3600
FILES = (
    "source/test_source.py",
    "sink/test_sink.py",
    "sink/test_sink_writes.py",
    "pipelines/test_topic_batches.py",
    "pipelines/test_into_batches.py",
    "pipelines/test_pipelines.py",
    "pipelines/test_runner.py",
)


def older_spark() -> Path:
    """A folder with Spark 4.1 alone; everything else is as it is installed."""
    folder = CACHE / "pyspark-4.1"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "pyspark-4.1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--target", str(making), WANTED], check=True)
            making.rename(folder)
    return folder


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS + 300)
def test_source_sink_and_pipelines_on_spark_4_1() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--long",
            "-p",
            "no:cacheprovider",
            *(f"tests/spark/{name}" for name in FILES),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(older_spark())},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
