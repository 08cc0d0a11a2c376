"""The order in which `./test` runs the files of tests."""

from __future__ import annotations

import pytest
from tests import schedule
from tests.schedule import next_file

QUICK, SLOW, SLOWER = "tests/broker/test_a.py", "tests/faults/test_b.py", "tests/cli/test_c.py"
SPARK, SLOW_SPARK = "tests/spark/test_d.py", "tests/spark/test_e.py"
ALL = (QUICK, SLOW, SLOWER, SPARK, SLOW_SPARK)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {SLOW: 10.0, SLOWER: 20.0, SLOW_SPARK: 30.0}
    monkeypatch.setattr(schedule, "durations", lambda: seconds)


def order(*, takes_spark: bool) -> list[str]:
    waiting = list(ALL)
    found = []
    while waiting:
        found.append(next_file(waiting, takes_spark=takes_spark))
        waiting.remove(found[-1])
    return found


def test_the_slowest_files_come_first() -> None:
    assert order(takes_spark=False)[:3] == [SLOWER, SLOW, QUICK]


def test_spark_stays_with_the_first_worker_while_there_is_something_else() -> None:
    assert order(takes_spark=True)[:2] == [SLOW_SPARK, SPARK]
    assert order(takes_spark=False)[-2:] == [SLOW_SPARK, SPARK]
