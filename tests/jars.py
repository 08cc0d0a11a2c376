"""Jars from Maven Central, resolved by `mvn` once and kept in a cache outside the repository."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CACHE = Path.home() / ".cache" / "headrace-tests"

_POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>headrace.tests</groupId><artifactId>jars</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


def jar(group: str, artifact: str, version: str) -> Path:
    """The jar of one artifact, without its dependencies."""
    folder = _resolve([(group, artifact, version)], transitive=False)
    return folder / f"{artifact}-{version}.jar"


def jars_with_dependencies(*artifacts: tuple[str, str, str]) -> list[Path]:
    """The jars of (group, artifact, version) rows and of all that they need at run time."""
    return sorted(_resolve(list(artifacts), transitive=True).glob("*.jar"))


def _resolve(artifacts: list[tuple[str, str, str]], *, transitive: bool) -> Path:
    name = "+".join(f"{artifact}-{version}" for _, artifact, version in artifacts)
    folder = CACHE / "jars" / (name if transitive else f"{name}-alone")
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Workers of one test run ask for the same jars at the same time: one downloads, others wait.
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _download(artifacts, folder, transitive=transitive)
    return folder


def _download(artifacts: list[tuple[str, str, str]], folder: Path, *, transitive: bool) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError("mvn is not installed; try: apt-get install maven default-jdk-headless")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as temp:
        rows = "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
        pom = Path(temp, "pom.xml")
        pom.write_text(_POM.format(dependencies=rows), encoding="utf-8")
        done = subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:copy-dependencies",
                f"-DexcludeTransitive={str(not transitive).lower()}",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={temp}/jars",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"mvn could not resolve {artifacts}:\n{done.stdout}{done.stderr}")
        os.rename(f"{temp}/jars", folder)
