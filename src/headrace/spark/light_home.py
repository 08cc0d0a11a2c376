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

from headrace.config import environment

# What Spark looks for in its home; not its `python`, where the zip is.
PARTS = ("bin", "jars", "sbin")


def light_home() -> AbstractContextManager[None]:
    """A Spark that starts in it is at home in a folder without the zip, if nobody named another."""
    home = None if environment.spark_home() else _make_home()
    return nullcontext() if home is None else environment.with_spark_home(home)


def _make_home() -> Path | None:
    """A folder of links into the package that pip has installed; None where there can be none."""
    import pyspark

    package = Path(pyspark.__file__).parent
    if os.name != "posix" or not all((package / part).is_dir() for part in PARTS):
        return None
    # Java opens the jars through the links as it needs them, so they stay.
    name = f"spark-{sha256(bytes(package)).hexdigest()[:16]}"
    home = environment.cache_dir() / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            if not (home / part).is_dir():
                _link(home / part, package / part)
    except OSError:
        return None
    return home


def _link(link: Path, target: Path) -> None:
    """Make a link, whoever else does so at this moment."""
    draft = link.with_name(f"{link.name}-{os.getpid()}")
    draft.symlink_to(target)
    draft.replace(link)
