"""Records of both topics: outcomes, and what the work topic has besides fenced jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.dispatch import Dispatcher
from headrace.dispatch.records import Outcome, parse_outcome


class Outsider:
    """Any Kafka client, which knows nothing of tokens."""

    def __init__(self, harness: Harness) -> None:
        self.topic = harness.topic
        settings = {"bootstrap.servers": harness.bootstrap, "log_level": 0}
        self._producer = Producer(settings)
        self._consumer = Consumer({**settings, "group.id": "outsider"})

    def send(self, value: bytes | None, partition: int, **headers: str) -> None:
        pairs = [(f"headrace-{name}", text.encode()) for name, text in headers.items()]
        self._producer.produce(self.topic, value, partition=partition, headers=pairs)
        assert self._producer.flush(WAIT_SECONDS) == 0

    def outcomes(self) -> list[Outcome]:
        """All of TOPIC.done."""
        place = TopicPartition(f"{self.topic}.done", 0, 0)
        _, end = self._consumer.get_watermark_offsets(place, WAIT_SECONDS)
        self._consumer.assign([place])
        found: list[Any] = []
        while len(found) < end:
            found += self._consumer.consume(end - len(found), 1.0)
        outcomes = [parse_outcome(it.key(), it.value(), it.headers()) for it in found]
        return [outcome for outcome in outcomes if outcome is not None]

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def outsider(harness: Harness) -> Iterator[Outsider]:
    made = Outsider(harness)
    yield made
    made.close()


def fence_of(harness: Harness, partition: int) -> str:
    return harness.status().tokens[partition].fence.text()


def started(harness: Harness, seen: list[bytes]) -> Dispatcher:
    def work(job: bytes) -> bytes:
        seen.append(job)
        return job

    node = harness.node(work, partitions=1)
    wait_until(lambda: harness.idle() == 1)
    return node


def test_a_record_without_a_value_only_gives_the_token_back(
    harness: Harness, outsider: Outsider
) -> None:
    seen: list[bytes] = []
    node = started(harness, seen)
    before = fence_of(harness, 0)
    for _ in range(3):
        outsider.send(None, 0)
    wait_until(lambda: fence_of(harness, 0) != before and harness.idle() == 1)
    assert node.submit_sync(b"after").result(WAIT_SECONDS) == b"after"
    assert seen == [b"after"]
    assert len(harness.status().tokens) == 1


def test_a_strangers_record_is_refused_and_never_run(harness: Harness, outsider: Outsider) -> None:
    seen: list[bytes] = []
    node = started(harness, seen)
    outsider.send(b"surprise", 0)
    outsider.send(b"surprise", 0, id="x", fence="nonsense")
    assert node.submit_sync(b"own").result(WAIT_SECONDS) == b"own"
    assert seen == [b"own"]
    assert node.metrics()["owner_refused"] == 2


def test_a_job_with_a_repeated_token_is_refused_at_once(
    harness: Harness, outsider: Outsider
) -> None:
    release = threading.Event()
    runs: list[bytes] = []

    def work(job: bytes) -> None:
        runs.append(job)
        assert release.wait(WAIT_SECONDS)

    node = harness.node(work, partitions=1)
    wait_until(lambda: harness.idle() == 1)
    fence = fence_of(harness, 0)
    handle = node.submit_sync(b"first")
    wait_until(lambda: runs)
    # The same token a second time, while the first job still runs.
    outsider.send(b"second", 0, id="repeat", fence=fence)
    wait_until(lambda: [it.id for it in outsider.outcomes() if it.state == "refused"] == ["repeat"])
    assert runs == [b"first"]
    release.set()
    assert handle.result(WAIT_SECONDS) is None
    # Used up, it is worth nothing afterwards either.
    outsider.send(b"third", 0, id="late", fence=fence)
    wait_until(lambda: "late" in {it.id for it in outsider.outcomes()})
    assert runs == [b"first"]
    assert node.metrics()["owner_refused"] == 2


def test_the_done_topic_tells_what_became_of_each_job(harness: Harness, outsider: Outsider) -> None:
    def work(job: str) -> str:
        if job == "bad":
            raise KeyError("no such thing")
        return job.upper()

    node = harness.node(work, partitions=1)
    handles = [node.submit_sync(job, id=job) for job in ("good", "bad")]
    wait_until(lambda: all(handle.done() for handle in handles))
    outcomes = {outcome.id: outcome for outcome in outsider.outcomes()}
    assert (outcomes["good"].state, outcomes["good"].answer) == ("done", b"GOOD")
    assert (outcomes["bad"].state, outcomes["bad"].error[0]) == ("failed", "KeyError")
    assert outcomes["good"].node == node.node.name  # type: ignore[union-attr]
    assert outcomes["good"].offset < outcomes["bad"].offset


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("a", "done", 1, 2, "3.4", "node", b"answer", "bytes"),
        Outcome("b", "failed", 0, 0, "1.0", "node", error=("ValueError", "line\nline")),
        Outcome("c", "refused", 15, 1 << 40, "", ""),
    ],
)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert parse_outcome(outcome.id.encode(), outcome.answer, outcome.headers()) == outcome


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (None, []),
        (b"a", None),
        (b"a", [("headrace-outcome", b"maybe"), ("headrace-place", b"1/2")]),
        (b"a", [("headrace-outcome", b"done"), ("headrace-place", b"1")]),
        (b"a", [("headrace-outcome", b"done"), ("headrace-place", b"x/2")]),
        (b"a", [("headrace-outcome", b"done"), ("headrace-place", "1/²".encode())]),
        (b"a", [("headrace-outcome", None)]),
    ],
)
def test_a_record_of_somebody_else_is_no_outcome(key: bytes | None, headers: Any) -> None:
    assert parse_outcome(key, b"", headers) is None
