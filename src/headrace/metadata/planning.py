"""Kafka's rules for new topics and partitions, applied to a request before anything changes."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.metadata.catalog_entries import Topic
from headrace.metadata.topic_names import INTERNAL, check_name, collision_key
from headrace.protocol.errors import ErrorCode, KafkaError

# Asks for the broker's default number of partitions or replicas.
DEFAULT = -1
# A single node holds one replica of everything.
REPLICAS = 1
PARTITIONS_PER_REQUEST_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; assignments, if any, name the brokers of each partition."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the node decides: its id, the default number of partitions, and valid settings."""

    node_id: int
    default_partitions: int
    # Raises ValueError with the reason if the settings of a topic are invalid.
    check_config: Callable[[Mapping[str, str]], object]


def new_topic_id() -> bytes:
    """A random topic id; like Kafka's, its text never starts with a dash, for command lines."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not base64.urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id


def plan_topics(
    wanted: Sequence[NewTopic], names: Mapping[str, str], rules: TopicRules
) -> list[Topic | KafkaError]:
    """For each wanted topic, the topic to create or the error; `names` are by collision key."""
    taken = dict(names)
    outcomes: list[Topic | KafkaError] = []
    for new in wanted:
        try:
            topic = _plan_topic(new, taken, rules)
        except KafkaError as error:
            outcomes.append(error)
        else:
            taken[collision_key(topic.name)] = topic.name
            outcomes.append(topic)
    try:
        check_total(sum(topic.partitions for topic in outcomes if isinstance(topic, Topic)))
    except KafkaError as error:
        return [error if isinstance(each, Topic) else each for each in outcomes]
    return outcomes


def _plan_topic(new: NewTopic, taken: Mapping[str, str], rules: TopicRules) -> Topic:
    try:
        check_name(new.name)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    alike = taken.get(collision_key(new.name))
    if alike == new.name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
    if alike is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{new.name}' collides with existing topic: {alike}",
        )
    config = _checked_config(new.config, rules)
    partitions = _partition_count(new, rules)
    return Topic(new.name, new_topic_id(), partitions, config, new.name in INTERNAL)


def _checked_config(given: Mapping[str, str | None], rules: TopicRules) -> dict[str, str]:
    nulls = [name for name, value in given.items() if value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    config = {name: value for name, value in given.items() if value is not None}
    try:
        rules.check_config(config)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return config


def _partition_count(new: NewTopic, rules: TopicRules) -> int:
    if new.assignments:
        if new.replication_factor != DEFAULT or new.partitions != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "With a manual partition assignment, the numbers of partitions and of replicas "
                "must both be -1.",
            )
        if sorted(new.assignments) != list(range(len(new.assignments))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Partitions should be a consecutive sequence of numbers from 0 on.",
            )
        for brokers in new.assignments.values():
            check_assignment(brokers, rules.node_id)
        return len(new.assignments)
    if new.replication_factor not in (DEFAULT, REPLICAS):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value."
            if new.replication_factor < REPLICAS
            else f"Unable to replicate the partition {new.replication_factor} time(s): "
            "the cluster has 1 broker; ask for 1, or for -1 (the default).",
        )
    if new.partitions == DEFAULT:
        return rules.default_partitions
    if new.partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return new.partitions


def check_growth(
    topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, node_id: int
) -> None:
    """Raise KafkaError unless the topic may grow to this many partitions."""
    if topic.internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"The number of partitions of '{topic.name}' cannot be changed.",
        )
    added = count - topic.partitions
    if added <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partitions} partition(s); "
            f"{count} would not be an increase.",
        )
    check_total(added)
    if assignments is None:
        return
    if len(assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but {len(assignments)} "
            "assignment(s) were specified.",
        )
    for brokers in assignments:
        check_assignment(brokers, node_id)


def check_assignment(brokers: Sequence[int], node_id: int) -> None:
    """Raise KafkaError unless these brokers can hold a partition: on a single node, only itself."""
    if list(brokers) == [node_id]:
        return
    if not brokers:
        reason = "The manual partition assignment includes an empty replica list."
    elif len(set(brokers)) != len(brokers):
        reason = "The manual partition assignment includes a broker more than once."
    else:
        unknown = next(broker for broker in brokers if broker != node_id)
        reason = (
            f"The manual partition assignment includes broker {unknown}, but no such broker is "
            "registered."
        )
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def check_total(partitions: int) -> None:
    """Raise KafkaError if one request asks for too many partitions."""
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions in one request; the limit is {PARTITIONS_PER_REQUEST_MAX}.",
        )
