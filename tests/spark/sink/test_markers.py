"""Markers: which batch a task has written last."""

from __future__ import annotations

import pytest

from headrace.client.admin.groups import MARKERS
from headrace.spark.errors import CheckpointTooOld
from headrace.spark.sink.markers import (
    MARKER_PARTITION,
    PREFIX,
    is_written,
    marker_name,
    marker_request,
)


def test_a_batch_is_written_once() -> None:
    assert not is_written(None, 0)
    assert not is_written(6, 7)
    assert is_written(7, 7)


def test_an_output_ahead_of_the_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointTooOld, match="holds batch 9, and the checkpoint is at batch 7"):
        is_written(9, 7)


def test_every_task_of_a_query_has_a_name_of_its_own() -> None:
    tasks = [("q", 1), ("q", 11), ("q1", 1)]
    names = [marker_name(*task, topic) for task in tasks for topic in (None, "t", "u")]
    assert len(set(names)) == len(names)


def test_a_marker_is_asked_for_by_its_place_where_that_is_known() -> None:
    asked = marker_request("group", "out")
    assert asked.require_stable
    # All places would leave out one whose first offset is being committed.
    assert asked.topics is not None
    assert [(it.name, it.partition_indexes) for it in asked.topics] == [("out", [MARKER_PARTITION])]
    assert marker_request("group", None).topics is None


def test_lag_tools_recognise_the_markers_of_a_sink() -> None:
    assert f"{PREFIX}." == MARKERS
