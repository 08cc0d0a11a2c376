"""Spark's official Kafka connector: its jars, as far as Maven Central gives them out here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

# Of the connector's own line, the newest that is to be had; what it needs beside Spark. The token
# provider is of an older line where its own cannot be had: it is of no use without Kerberos.
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", ("4.2.1", "4.2.0")),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", ("4.2.1", "4.2.0", "4.0.0")),
    ("org.apache.kafka", "kafka-clients", ("3.9.2",)),
    ("org.apache.commons", "commons-pool2", ("2.12.1",)),
)
_SECONDS_MAX = 300.0


class NoConnector(RuntimeError):
    """The jars cannot be had."""


def connector_jars(cache: Path) -> list[Path]:
    """The jars, downloaded once; NoConnector if one of them cannot be had."""
    folder = cache / "spark-connector"
    folder.mkdir(parents=True, exist_ok=True)
    return [_jar(folder, *artifact) for artifact in ARTIFACTS]


def _jar(folder: Path, group: str, artifact: str, versions: tuple[str, ...]) -> Path:
    for version in versions:
        path = folder / f"{artifact}-{version}.jar"
        if path.is_file() or _download(folder, f"{group}:{artifact}:{version}"):
            return path
    raise NoConnector(f"Maven Central does not give out {artifact} {' or '.join(versions)}")


def _download(folder: Path, coordinates: str) -> bool:
    if shutil.which("mvn") is None:
        raise NoConnector("mvn is not installed")
    # One artifact by itself: what it says that it needs may not be to be had.
    done = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={coordinates}",
            f"-DoutputDirectory={folder}",
        ],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    return done.returncode == 0
