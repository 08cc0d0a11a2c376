"""Sessions as pipelines have them, each in a process of its own: what its tasks find there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="Java is not installed; Spark needs 17 or later"
)

PROGRAM = """
import json, os, signal
import pyspark
from headrace.spark import open_session

def at_interrupt(*_): pass

signal.signal(signal.SIGINT, at_interrupt)
spark = open_session("test", "local[1]", {"spark.driver.memory": "512m"})

def look(_):
    return {
        "package": pyspark.__file__,
        "home": os.environ["SPARK_HOME"],
        "sockets": os.environ["PYTHON_UNIX_DOMAIN_ENABLED"],
    }

[found] = spark.range(1).rdd.map(look).collect()
found["keeps"] = signal.getsignal(signal.SIGINT) is at_interrupt
found["same"] = open_session("another") is spark
spark.stop()
signal.signal(signal.SIGINT, signal.default_int_handler)
firsts = []
for _ in range(2):
    spark = open_session("again", "local[1]", {"spark.driver.memory": "512m"})
    firsts.append(signal.getsignal(signal.SIGINT))
    spark.stop()
found["anew"] = firsts[0] is not firsts[1] and firsts[0] is not signal.default_int_handler
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a session's task found, and its driver."""
    cache = tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "cache": cache}


def test_tasks_have_what_pip_installed(found: dict[str, Any]) -> None:
    assert ".zip" not in found["package"]
    assert Path(found["home"]).parent == found["cache"] / "headrace"


def test_tasks_talk_over_unix_sockets(found: dict[str, Any]) -> None:
    assert found["sockets"] == "True"


def test_ctrl_c_is_whose_it_was(found: dict[str, Any]) -> None:
    assert found["keeps"]


def test_ctrl_c_is_the_last_sessions_if_it_was_nobodys(found: dict[str, Any]) -> None:
    assert found["anew"]


def test_a_session_that_runs_is_taken(found: dict[str, Any]) -> None:
    assert found["same"]
