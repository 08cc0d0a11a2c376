"""Which worker runs which file of tests, and in which order, when several work at once.

Tests wait more than they compute, so `./test` starts two workers for each core. A file stays with
one worker, because its tests share brokers and databases. Files that take long come first, so that
no worker is left alone with one at the end. The first worker takes the files of Spark, and the
others take them only when nothing else is left: each worker that does starts a JVM of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.workermanage import WorkerController

# Lines of seconds and a file, written by tools/durations; a file that is not there is quick.
DURATIONS = Path(__file__).with_name("durations.txt")
SPARK_FOLDER = "tests/spark/"
# What is in the name of a test that needs a JVM, or in the text of a file of such tests.
JVM_NAME = re.compile("apache|java|zookeeper", re.IGNORECASE)
JVM_TEXT = re.compile("apache|java", re.IGNORECASE)


@cache
def durations() -> dict[str, float]:
    """About how many seconds each of the slow files takes."""
    rows = (line.split() for line in DURATIONS.read_text(encoding="utf-8").splitlines())
    return {file: float(seconds) for seconds, file in rows}


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is part of `./test --quick`: of a file of a few seconds, and without a JVM."""
    file = item.nodeid.partition("::")[0]
    uses_spark = "spark" in getattr(item, "fixturenames", ())
    uses_jvm = uses_spark or JVM_NAME.search(item.nodeid) or _names_a_jvm(item.path)
    return file not in durations() and not uses_jvm


@cache
def _names_a_jvm(file: Path) -> bool:
    return JVM_TEXT.search(file.read_text(encoding="utf-8")) is not None


def next_file(waiting: Iterable[str], *, takes_spark: bool) -> str:
    """The file that a worker runs next: the slowest of those that it prefers."""

    def rank(file: str) -> tuple[bool, float]:
        return file.startswith(SPARK_FOLDER) == takes_spark, durations().get(file, 0.0)

    return max(waiting, key=rank)


class SlowestFirst(LoadFileScheduling):  # type: ignore[misc]
    """xdist's scheduler of whole files, with an order of its own."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        takes_spark = node is self.nodes[0]
        self.workqueue.move_to_end(next_file(self.workqueue, takes_spark=takes_spark), last=False)
        super()._assign_work_unit(node)
