"""Where records go: by hand, by the key's hash, in turn, in batches, by a function."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka

from headrace.client import Producer
from headrace.client.errors import DeliveryFailed
from headrace.client.partitioners import RoundRobin, Sticky, murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the tests of Kafka's own Java client, made positive as its partitioner does.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0x7FFF_FFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_key_has_the_partition_that_the_library_gives_it(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == confluent_kafka.murmur2(key, partitions)


def send_all(kafka: Kafka, topic: str, keys: list[str | None], **options: Any) -> list[int]:
    with Producer(kafka.quiet, **options) as producer:
        # What the library cannot send yet, it spreads without a plan.
        producer.send_and_wait(topic, "warm", partition=0)
        sent = [producer.send(topic, "v" * 100, key=key) for key in keys]
        return [one.result(TIMEOUT_SECONDS).partition for one in sent]


def test_a_key_goes_where_all_clients_put_it(kafka: Kafka) -> None:
    topic = kafka.topic("keys", 5)
    keys: list[str | None] = [f"key-{number}" for number in range(100)]
    expected = [partition_of(str(key).encode(), 5) for key in keys]
    assert send_all(kafka, topic, keys) == expected


def test_an_explicit_partition_wins(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("explicit", 3)
    with Producer(headrace_kafka.quiet, partitioner="round_robin") as producer:
        found = [producer.send(topic, "v", key=f"{number}", partition=2) for number in range(10)]
        assert {one.result(TIMEOUT_SECONDS).partition for one in found} == {2}


def test_round_robin_takes_turns_whatever_the_key(kafka: Kafka) -> None:
    topic = kafka.topic("turns", 3)
    assert send_all(kafka, topic, ["same"] * 9, partitioner="round_robin") == [0, 1, 2] * 3


def test_sticky_fills_one_batch_after_the_other(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("sticky", 3)
    keys: list[str | None] = [f"{number}" for number in range(1000)]
    partitions = send_all(headrace_kafka, topic, keys, partitioner="sticky")
    changes = sum(before != after for before, after in pairwise(partitions))
    # 103 bytes each: a batch of 16 KiB has some 160 of them.
    assert changes == 6
    assert min(Counter(partitions).values()) > 100


def test_without_a_key_a_batch_stays_together(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("keyless", 8)
    partitions = send_all(headrace_kafka, topic, [None] * 200)
    changes = sum(before != after for before, after in pairwise(partitions))
    assert changes < 20


def test_a_function_chooses(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("chosen", 4)
    seen: list[tuple[str, bytes | None, bytes | None, int]] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        seen.append((topic, key, value, partitions))
        return partitions - 1

    assert send_all(headrace_kafka, topic, ["k"], partitioner=choose) == [3]
    assert seen == [(topic, b"k", b"v" * 100, 4)]


def test_a_function_that_chooses_what_is_not_there_is_refused(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("beyond", 2)
    with (
        Producer(headrace_kafka.quiet, partitioner=lambda *_: 2) as producer,
        pytest.raises(ValueError, match=r"chose partition 2 of .*; return 0 to 1"),
    ):
        producer.send(topic, "v")


def test_kafkas_names_of_partitioners_are_known(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("named", 2)
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    with Producer({**headrace_kafka.quiet, "partitioner.class": name}) as producer:
        sent = [producer.send(topic, "v") for _ in range(4)]
        assert [one.result(TIMEOUT_SECONDS).partition for one in sent] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="round_robin, sticky"):
        Producer(headrace_kafka.quiet, partitioner="roundrobbin")


def test_a_topic_that_cannot_be_written_to_is_an_error_after_max_block_ms(
    headrace_kafka: Kafka,
) -> None:
    settings = {**headrace_kafka.quiet, "max.block.ms": 200}
    with (
        Producer(settings, partitioner="round_robin") as producer,
        pytest.raises(DeliveryFailed, match="cannot be written to"),
    ):
        producer.send("no such name!", "v")


@given(st.integers(1, 20), st.integers(1, 200))
def test_turns_are_even(partitions: int, records: int) -> None:
    turns = RoundRobin()
    chosen = Counter(turns("t", None, None, partitions) for _ in range(records))
    assert max(chosen.values()) - min(chosen.get(at, 0) for at in range(partitions)) <= 1


@given(st.lists(st.integers(0, 400), min_size=1, max_size=100), st.integers(2, 5))
def test_sticky_changes_only_when_a_batch_is_full(sizes: list[int], partitions: int) -> None:
    sticky = Sticky(batch_bytes=1000)
    now, filled = None, 0
    for size in sizes:
        chosen = sticky("t", None, b"x" * size, partitions)
        if now is not None and filled < 1000:
            assert chosen == now
        elif now is not None:
            assert chosen == (now + 1) % partitions
            filled = 0
        now, filled = chosen, filled + size
