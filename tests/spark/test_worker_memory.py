"""A process of Spark's is settled once, at its first task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from headrace.spark import worker_memory
from headrace.spark.worker_memory import settle


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "_is_settled", False)
    yield
    gc.unfreeze()


def test_only_a_task_settles_its_process_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other threads may let go of something meanwhile, so the count may fall by itself.
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() <= before
    monkeypatch.setattr(TaskContext, "get", object)
    settle()
    settled = gc.get_freeze_count()
    assert settled > before
    kept = [[number] for number in range(1_000)]
    settle()
    assert gc.get_freeze_count() <= settled
    assert len(kept) == 1_000
