"""A worker of Spark freezes its objects once, in its first task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from headrace.spark import sessions
from headrace.spark.sessions import freeze_loaded_objects


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sessions, "_are_objects_frozen", False)
    yield
    gc.unfreeze()


def test_only_a_task_freezes_objects_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other threads may free objects meanwhile, so the count may fall by itself.
    before = gc.get_freeze_count()
    freeze_loaded_objects()
    assert gc.get_freeze_count() <= before
    monkeypatch.setattr(TaskContext, "get", object)
    freeze_loaded_objects()
    frozen = gc.get_freeze_count()
    assert frozen > before
    kept = [[number] for number in range(1_000)]
    freeze_loaded_objects()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 1_000
