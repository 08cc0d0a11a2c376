"""`headrace doctor`: what it finds, and what it says to do."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL

from headrace.cli.doctor import verbs as doctor


def test_it_looks_at_every_part_as_json() -> None:
    told = subprocess.run(
        [*TOOL, "doctor", "-o", "json"],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    rows = json.loads(told.stdout)
    assert [row["check"] for row in rows] == [
        "python", "uvloop", "crc32c", "cramjam", "open files", "free disk", "sync to disk", "java",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "is_needed", "is_fine", "finding"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True, True, "17.0.15"),
        ('openjdk version "25" 2025-09-16', True, True, "25"),
        ('java version "1.8.0_392"', True, False, "install 17 or newer"),
        ('java version "1.8.0_392"', False, True, "only pipelines on Spark"),
        ("", True, False, "no version"),
    ],
)
def test_java_is_needed_only_for_spark(
    monkeypatch: pytest.MonkeyPatch, told: str, is_needed: bool, is_fine: bool, finding: str
) -> None:
    class Told:
        stderr = told

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/java")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: Told())
    fine, text = doctor._java(is_needed)
    assert (fine, finding in text) == (is_fine, True)


def test_java_is_looked_for_where_spark_looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    fine, text = doctor._java(True)
    assert not fine
    assert "/no/such/java/bin/java" in text


def test_a_missing_java_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert doctor._java(True) == (
        False,
        "not found; install 17 or newer: apt-get install default-jre-headless",
    )
