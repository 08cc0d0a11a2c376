"""The home without Spark's own copy of PySpark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.light_home import PARTS, VARIABLE, light_home

# Where a task's Python has PySpark from, and what it was told is Spark's home.
TASK = """
import json, os
import pyspark
from headrace.spark import open_session

spark = open_session("home", "local[1]", {"spark.driver.memory": "512m"})
found = spark.range(1).rdd.map(lambda _: (pyspark.__file__, os.environ["SPARK_HOME"])).collect()
print(json.dumps(found[0]))
spark.stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "headrace"


def test_a_home_is_made_once_and_left_as_it_was(cache: Path) -> None:
    for _ in range(2):
        with light_home():
            home = Path(os.environ[VARIABLE])
            assert sorted(path.name for path in home.iterdir()) == sorted(PARTS)
            assert (home / "bin" / "spark-submit").is_file()
        assert VARIABLE not in os.environ
    assert list(cache.iterdir()) == [home]


def test_a_link_that_leads_nowhere_is_made_anew(cache: Path) -> None:
    with light_home():
        jars = Path(os.environ[VARIABLE]) / "jars"
    jars.unlink()
    jars.symlink_to(cache / "removed")
    with light_home():
        assert jars.is_dir()


def test_a_home_that_was_named_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/opt/spark")
    with light_home():
        assert os.environ[VARIABLE] == "/opt/spark"
    assert os.environ[VARIABLE] == "/opt/spark"


def test_a_cache_that_cannot_be_written_to_costs_speed_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    with light_home():
        assert VARIABLE not in os.environ


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_tasks_have_what_pip_installed(cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TASK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    package, home = json.loads(done.stdout.splitlines()[-1])
    assert ".zip" not in package
    assert Path(home).parent == cache
