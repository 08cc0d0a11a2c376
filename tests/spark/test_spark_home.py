"""The home without Spark's own copy of PySpark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.config.environment import SPARK_HOME
from headrace.spark.sessions import CONFIG_FOLDER, HOME_FOLDERS, home_without_zip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(SPARK_HOME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "headrace"


def test_a_home_is_made_once_and_left_as_it_was(cache: Path) -> None:
    known: list[int] = []
    for _ in range(2):
        with home_without_zip():
            home = Path(os.environ[SPARK_HOME])
            assert {path.name for path in home.iterdir()} - {CONFIG_FOLDER} == set(HOME_FOLDERS)
            assert (home / "bin" / "spark-submit").is_file()
            made = [(home / folder).lstat().st_ino for folder in HOME_FOLDERS]
            assert made == known or not known
            known = made
        assert SPARK_HOME not in os.environ
    assert list(cache.iterdir()) == [home]


def test_a_link_that_leads_nowhere_is_made_anew(cache: Path) -> None:
    with home_without_zip():
        jars = Path(os.environ[SPARK_HOME]) / "jars"
    jars.unlink()
    jars.symlink_to(cache / "removed")
    with home_without_zip():
        assert jars.is_dir()


def test_what_others_may_write_to_is_not_run(cache: Path) -> None:
    with home_without_zip():
        home = Path(os.environ[SPARK_HOME])
    home.chmod(0o777)
    with home_without_zip():
        assert SPARK_HOME not in os.environ


def test_a_configuration_in_sparks_home_counts(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark"
    for folder in (*HOME_FOLDERS, CONFIG_FOLDER):
        (package / folder).mkdir(parents=True)
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", lambda: str(package))
    with home_without_zip():
        assert (Path(os.environ[SPARK_HOME]) / CONFIG_FOLDER).readlink() == package / CONFIG_FOLDER


def test_a_home_that_was_named_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK_HOME, "/opt/spark")
    with home_without_zip():
        assert os.environ[SPARK_HOME] == "/opt/spark"
    assert os.environ[SPARK_HOME] == "/opt/spark"


def test_a_cache_that_cannot_be_written_to_costs_speed_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SPARK_HOME, raising=False)
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    with home_without_zip():
        assert SPARK_HOME not in os.environ

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with home_without_zip():
        assert SPARK_HOME not in os.environ
