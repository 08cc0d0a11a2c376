"""Compiles the Java programs once into the cache outside the repository."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from tests.apache_kafka import VERSION, classpath, java_command
from tests.interop.programs import HERE, build, need
from tests.jars import CACHE, jar

SOURCES = HERE / "java"
OLDER = "3.9.2"


def java_program(name: str, *args: str, older: bool = False) -> list[str]:
    """The command that runs a class of `java/`, with the client of Kafka 3.9 when asked."""
    need("javac", "mvn")
    jars = [_classes(_streams()), _streams()]
    if older:
        jars.append(jar("org.apache.kafka", "kafka-clients", OLDER))
    return java_command(name, *args, jars_first=jars)


def _streams() -> Path:
    # Without what it needs: Kafka's own jars are there, and RocksDB is not used.
    return jar("org.apache.kafka", "kafka-streams", VERSION)


def _classes(streams: Path) -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(VERSION.encode())
    for source in sources:
        digest.update(source.read_bytes())
    folder = CACHE / "java" / digest.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            places = os.pathsep.join([str(streams), classpath()])
            command = ["javac", "-cp", places, "-d", str(fresh), *map(str, sources)]
            build(command, SOURCES, dict(os.environ))
            fresh.rename(folder)
    return folder
