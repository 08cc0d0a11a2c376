"""A home for Spark on this machine that leaves out Spark's own copy of PySpark.

Spark puts a zip with it before everything else on the path of each Python process that it starts,
and Python keeps no compiled form of what comes out of a zip: every process compiles PySpark anew,
which takes it about a second. What pip has installed is the same, and is compiled once.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from headrace.config import environment

# What has to be in Spark's home, and what may be; not its `python`, where the zip is.
PARTS = ("bin", "jars", "sbin")
CONFIG = "conf"


def light_home() -> AbstractContextManager[None]:
    """A Spark that starts in it is at home in a folder without the zip, if nobody named another."""
    if environment.spark_home() or os.name != "posix":
        return nullcontext()
    try:
        return environment.with_spark_home(_make_home())
    except (OSError, RuntimeError):
        # No cache, or none that is ours alone: it starts all the same, only later.
        return nullcontext()


def _make_home() -> Path:
    """A folder of links into the package that pip has installed; OSError if there can be none."""
    from pyspark.find_spark_home import _find_spark_home

    package = Path(_find_spark_home())
    # Java opens the jars through the links as it needs them, so they stay.
    home = environment.cache_dir() / f"spark-{sha256(bytes(package)).hexdigest()[:16]}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.stat()
    # Programs are run out of it.
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{home} is not ours alone")
    for part in PARTS:
        _link(home / part, package / part)
    if (package / CONFIG).is_dir():
        _link(home / CONFIG, package / CONFIG)
    return home


def _link(link: Path, target: Path) -> None:
    """Make a link, unless it is there, whoever else does so at this moment."""
    target.stat()
    if link.is_symlink() and link.readlink() == target:
        return
    draft = link.with_name(f"{link.name}-{uuid4().hex}")
    draft.symlink_to(target)
    draft.replace(link)
