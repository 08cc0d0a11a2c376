"""Kafka's rules for new topics and partitions."""

from __future__ import annotations

import base64

import pytest

from headrace.config import BROKER_ROWS, Settings, topic_settings
from headrace.metadata import Topic
from headrace.metadata.planning import (
    PARTITIONS_PER_REQUEST_MAX,
    NewTopic,
    TopicRules,
    check_growth,
    new_topic_id,
    plan_topics,
)
from headrace.metadata.topic_names import collision_key
from headrace.protocol.errors import ErrorCode, KafkaError

NODE = 1
SETTINGS = Settings.parse(BROKER_ROWS)
RULES = TopicRules(NODE, 3, lambda config: topic_settings(SETTINGS, config))


def plan(*wanted: NewTopic, existing: tuple[str, ...] = ()) -> list[Topic | KafkaError]:
    names = {collision_key(name): name for name in existing}
    return plan_topics(wanted, names, RULES)


def refusal(new: NewTopic, existing: tuple[str, ...] = ()) -> KafkaError:
    (outcome,) = plan(new, existing=existing)
    assert isinstance(outcome, KafkaError)
    return outcome


def made(new: NewTopic) -> Topic:
    (outcome,) = plan(new)
    assert isinstance(outcome, Topic), outcome
    return outcome


def test_defaults_come_from_the_broker() -> None:
    topic = made(NewTopic("t"))
    assert (topic.name, topic.partitions, topic.config, topic.internal) == ("t", 3, {}, False)
    assert len(topic.id) == 16


def test_given_numbers_and_settings_are_taken() -> None:
    topic = made(NewTopic("t", 7, 1, config={"retention.ms": "5"}))
    assert (topic.partitions, topic.config) == (7, {"retention.ms": "5"})


def test_a_manual_assignment_to_this_node_is_taken() -> None:
    assert made(NewTopic("t", assignments={1: [NODE], 0: [NODE]})).partitions == 2


def test_the_brokers_own_names_are_internal() -> None:
    assert made(NewTopic("__consumer_offsets")).internal


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a" * 250, "a:b", "a,b"])
def test_an_illegal_name_is_refused(name: str) -> None:
    error = refusal(NewTopic(name))
    assert error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error.message.startswith("Topic name is invalid")


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "__x"])
def test_a_legal_name_is_taken(name: str) -> None:
    assert made(NewTopic(name)).name == name


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -1, {0: [NODE]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, {0: [NODE]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments={1: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [NODE, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: [NODE, NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retenton.ms": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", PARTITIONS_PER_REQUEST_MAX + 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_an_impossible_wish_is_refused_with_kafkas_code(new: NewTopic, code: ErrorCode) -> None:
    assert refusal(new).code == code


def test_a_bad_setting_is_refused_with_its_name_and_the_nearest_one() -> None:
    message = refusal(NewTopic("t", config={"retenton.ms": "1"})).message
    assert message == "retenton.ms: unknown topic setting (did you mean retention.ms?)"


def test_a_name_in_use_is_refused() -> None:
    assert refusal(NewTopic("t"), ("t",)).code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_differs_from_another_only_in_dots_is_refused() -> None:
    error = refusal(NewTopic("a.b_c"), ("a_b.c",))
    assert error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides with existing topic: a_b.c" in error.message


def test_topics_of_one_request_are_judged_one_by_one_and_against_each_other() -> None:
    outcomes = plan(NewTopic("a.b"), NewTopic("bad name"), NewTopic("a_b"), NewTopic("c"))
    assert [isinstance(outcome, Topic) for outcome in outcomes] == [True, False, False, True]


def test_the_limit_on_partitions_counts_over_the_whole_request() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2 + 1
    outcomes = plan(NewTopic("a", half), NewTopic("b", half))
    assert {outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)} == {
        ErrorCode.POLICY_VIOLATION
    }


def test_topic_ids_are_random_and_never_start_with_a_dash_as_text() -> None:
    ids = {new_topic_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert not any(base64.urlsafe_b64encode(each).startswith(b"-") for each in ids)


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[NODE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PARTITIONS_PER_REQUEST_MAX + 3, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_a_topic_only_grows_as_it_can(
    count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        check_growth(Topic("t", bytes(16), 2), count, assignments, NODE)
    assert caught.value.code == code


def test_growth_is_allowed_with_and_without_an_assignment() -> None:
    topic = Topic("t", bytes(16), 2)
    check_growth(topic, 3, None, NODE)
    check_growth(topic, 4, [[NODE], [NODE]], NODE)


def test_the_brokers_own_topics_do_not_grow() -> None:
    with pytest.raises(KafkaError, match="cannot be changed"):
        check_growth(Topic("__consumer_offsets", bytes(16), 50, internal=True), 51, None, NODE)
