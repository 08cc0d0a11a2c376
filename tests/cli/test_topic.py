"""`headrace topic` against a real broker."""

from __future__ import annotations

import json

import pytest
from tests.cli.tool import Headrace


def test_a_topic_goes_through_its_life(headrace: Headrace) -> None:
    assert headrace("topic", "create", "orders", "-p", "2").stdout == "created orders\n"
    [listed] = json.loads(headrace("topic", "list", "-o", "json").stdout)
    assert listed == {"topic": "orders", "partitions": 2, "replicas": 1}
    assert headrace("topic", "alter", "orders", "-p", "3", "-c", "retention.ms=1000").stdout == (
        "altered orders\n"
    )
    [described] = json.loads(headrace("topic", "describe", "orders", "-o", "json").stdout)
    assert described["config"] == {"retention.ms": "1000"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    headrace("topic", "alter", "orders", "--delete-config", "retention.ms")
    [described] = json.loads(headrace("topic", "describe", "orders", "-o", "json").stdout)
    assert described["config"] == {}
    assert headrace("topic", "delete", "orders").stdout == "deleted orders\n"
    assert json.loads(headrace("topic", "list", "-o", "json").stdout) == []


def test_internal_topics_are_listed_only_when_asked(headrace: Headrace) -> None:
    headrace("produce", "orders", stdin="x\n")
    headrace("consume", "orders", "--group", "g", "-c", "1")
    names = [row["topic"] for row in json.loads(headrace("topic", "list", "-o", "json").stdout)]
    assert names == ["orders"]
    assert "__consumer_offsets" in headrace("topic", "list", "--internal").stdout


def test_offsets_of_a_partition_are_shown(headrace: Headrace) -> None:
    headrace("produce", "orders", stdin="a\nb\nc\n")
    [described] = json.loads(headrace("topic", "describe", "orders", "-o", "json").stdout)
    assert (described["partitions"][0]["start"], described["partitions"][0]["end"]) == (0, 3)


def test_creating_a_topic_twice_fails_unless_told_otherwise(headrace: Headrace) -> None:
    headrace("topic", "create", "orders")
    errors = headrace("topic", "create", "orders", fails=True).stderr
    assert "exists" in errors
    assert "hint: headrace topic alter" in errors
    headrace("topic", "create", "orders", "--if-not-exists")


@pytest.mark.parametrize("verb", ["describe", "delete", "alter"])
def test_a_misspelt_topic_is_answered_with_the_nearest(headrace: Headrace, verb: str) -> None:
    headrace("topic", "create", "orders")
    options = ("-p", "2") if verb == "alter" else ()
    errors = headrace("topic", verb, "order", *options, fails=True).stderr
    assert "there is no topic 'order'" in errors
    assert "did you mean orders?" in errors


def test_a_bad_topic_setting_is_refused_with_its_name(headrace: Headrace) -> None:
    errors = headrace("topic", "create", "orders", "-c", "retention.mss=1", fails=True).stderr
    assert "retention.mss" in errors


def test_partitions_cannot_become_fewer(headrace: Headrace) -> None:
    headrace("topic", "create", "orders", "-p", "3")
    errors = headrace("topic", "alter", "orders", "-p", "2", fails=True).stderr
    assert errors.startswith("headrace: ")


def test_altering_nothing_is_a_mistake(headrace: Headrace) -> None:
    errors = headrace("topic", "alter", "orders", fails=True).stderr
    assert "nothing to change" in errors
