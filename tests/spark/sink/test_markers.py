"""Markers, plans and what a checkpoint says: the rules of exactly once, without Spark."""

from __future__ import annotations

import pytest

from headrace.spark.errors import CheckpointTooOld
from headrace.spark.pipelines.pins import Pin, differences, open_batch, plan_fingerprint
from headrace.spark.sink.markers import MARKER_PARTITION, is_written, marker_name, marker_request

PLAN = """Project [_key#31, cast(count#45L as string) AS value#60]
+- Aggregate [window#50-T600000ms, user#12], [window#50 AS w#51, user#12, count(1) AS count#45L]
   +- Filter exists(tags#9, lambdafunction((lambda x_4#77 = a), lambda x_4#77, false))
      +- EventTimeWatermark 0f8e1b2c-aaaa-bbbb-cccc-0123456789ab, at#8, 10 minutes
         +- StreamingRelationV2 Python@5e3fa, headrace, [bootstrap=a:1, group=g], [user#12]
"""


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


def test_the_same_query_in_another_run_has_the_same_fingerprint() -> None:
    again = (
        PLAN.replace("#31", "#131")
        .replace("#45L", "#7L")
        .replace("@5e3fa", "@77aa1")
        .replace("#12", "#900")
        .replace("x_4#77", "x_11#5")
        .replace("0f8e1b2c-aaaa", "11223344-dddd")
    )
    assert plan_fingerprint(again) == plan_fingerprint(PLAN)


def test_where_and_how_fast_a_source_is_read_changes_no_fingerprint() -> None:
    elsewhere = PLAN.replace("bootstrap=a:1", "bootstrap=b:2, maxOffsetsPerTrigger=5")
    assert plan_fingerprint(elsewhere) == plan_fingerprint(PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [("user#12]", "country#12]"), ("as string", "as binary"), ("T600000ms", "T1ms")],
)
def test_another_query_has_another_fingerprint(old: str, new: str) -> None:
    assert plan_fingerprint(PLAN.replace(old, new)) != plan_fingerprint(PLAN)


def test_expressions_that_change_places_change_the_fingerprint() -> None:
    assert plan_fingerprint("a#1 b#2 a#1") != plan_fingerprint("a#1 b#2 a#2")


def test_differences_are_said_in_words() -> None:
    kept = Pin(4, ("key",), "p")
    assert differences(kept, kept) == []
    assert differences(kept, Pin(8, ("user",), "q")) == [
        "tasks were 4 and are 8",
        "the key was key and is user",
        "the query's plan has changed",
    ]
    assert Pin.from_json(kept.to_json()) == kept


def test_a_batch_that_was_begun_and_not_finished_is_open() -> None:
    assert open_batch([], []) is None
    assert open_batch(["0", "1", ".2.crc"], ["0", "1"]) is None
    assert open_batch(["9", "10"], ["9"]) == 10
    assert open_batch(["0"], []) == 0
