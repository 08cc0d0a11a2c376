"""The partitions of a handler: where they start, what is committed of them, how they go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.handlers.stage import FakeConsumer, Stage, records

from headrace.handlers import assignment as assignment_module
from headrace.handlers.assignment import Assignment
from headrace.handlers.lanes import Track
from headrace.handlers.scheduler import ChunkResult
from headrace.store import Store, StoreUnavailable, open_store
from headrace.store.offsets import StoredOffset

PLACE = ("t", 0)


def ignore(number: int) -> None:
    """A handler that does nothing."""


class Scene:
    """An assignment with partition 0."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.stage = Stage(ignore, store, **options)
        self.consumer = FakeConsumer()
        self.stop = threading.Event()
        consumer: Any = self.consumer
        self.assignment = Assignment(
            self.stage.scheduler, self.stage.failures, consumer, self.stage.context, self.stop
        )
        (self.started,) = self.assignment.assigned([TopicPartition("t", 0)])
        self.track = self.assignment.tracks[PLACE]

    def run(self, offsets: list[int], done: int) -> None:
        """Let a worker finish the first `done` messages with these offsets."""
        chunk = self.stage.take((self.track, offsets))
        self.stage.scheduler.settle(chunk, ChunkResult(done))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/shop.db")
    store.create()
    yield store
    store.close()


def test_only_the_finished_prefix_is_committed_and_only_when_it_has_moved() -> None:
    scene = Scene()
    scene.assignment.commit()
    assert scene.consumer.commits == [], "nothing has arrived"
    scene.run([5, 6, 7], done=2)
    scene.assignment.commit()
    scene.assignment.commit()
    assert scene.consumer.commits == [{PLACE: 7}]


def test_a_refused_commit_is_sent_again_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.run([5], done=1)
    scene.assignment.commit()
    with caplog.at_level(logging.WARNING, "headrace.handlers"):
        scene.consumer.on_commit(KafkaError(KafkaError.REBALANCE_IN_PROGRESS), [])
    assert "offsets were not committed" in caplog.text
    scene.assignment.commit()
    assert scene.consumer.commits == [{PLACE: 6}, {PLACE: 6}]


@pytest.mark.parametrize("options", [{"delivery": "at_most_once"}, {"once": "transaction"}])
def test_a_handler_whose_offsets_go_another_way_commits_none(options: dict[str, Any]) -> None:
    scene = Scene(**options)
    scene.run([5], done=1)
    scene.assignment.commit()
    scene.assignment.revoked([TopicPartition("t", 0)], 0)
    assert scene.consumer.commits == scene.consumer.synced == []


def test_a_revoked_partition_is_committed_at_once_and_what_waits_is_dropped() -> None:
    scene = Scene()
    scene.run([5, 6, 7], done=1)
    scene.assignment.revoked([TopicPartition("t", 0)], 0)
    assert scene.consumer.synced == [{PLACE: 6}]
    assert scene.assignment.tracks == {}
    assert not scene.track.open
    assert scene.stage.scheduler.lanes.messages == 0


def test_a_lost_partition_is_not_committed() -> None:
    scene = Scene()
    scene.run([5, 6], done=1)
    scene.assignment.lost([TopicPartition("t", 0), TopicPartition("t", 9)])
    assert scene.consumer.commits == scene.consumer.synced == []
    assert scene.assignment.tracks == {}


def test_a_commit_that_fails_does_not_stop_the_rebalance(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.run([5], done=1)

    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))

    monkeypatch.setattr(scene.consumer, "commit_sync", refuse)
    scene.assignment.revoked([TopicPartition("t", 0)], 0)
    assert "offsets were not committed" in caplog.text
    assert scene.assignment.tracks == {}


def test_records_of_partitions_that_are_not_assigned_are_left_out() -> None:
    scene = Scene()
    found = scene.assignment.by_track(records(0, [1]) + records(3, [8, 9]) + records(0, [2]))
    assert {track: [record.offset() for record in own] for track, own in found.items()} == {
        scene.track: [1, 2]
    }


def test_a_partition_behind_an_unfinished_message_is_stuck() -> None:
    scene = Scene(order="none")
    scene.run(list(range(8)), done=0)
    with scene.stage.scheduler.lock:
        first, *others = scene.stage.scheduler.lanes.take(8)
    scene.stage.scheduler.settle(others, ChunkResult(len(others)))
    assert scene.assignment.stuck(6) == {PLACE}
    assert scene.assignment.stuck(7) == set()
    scene.stage.scheduler.settle([first], ChunkResult(1))
    assert scene.assignment.stuck(0) == set()


def test_offsets_in_the_store_decide_where_to_start_and_fence_the_last_owner(store: Store) -> None:
    before = store.offsets.load("g", [PLACE])[PLACE].epoch
    with store.begin() as tx:
        store.offsets.save(tx, "g", {PLACE: StoredOffset(40, before)})
    scene = Scene(store, once="offsets")
    assert scene.started.offset == 40
    assert (scene.track.base, scene.track.epoch) == (40, before + 1)


def test_a_store_that_comes_back_is_waited_for_with_an_alarm(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment_module, "STORE_PAUSE_SECONDS", 0.0)
    scene = Scene(store)
    alarms: list[str] = []
    scene.stage.context.alarms.add(lambda alarm: alarms.append(alarm.name))
    answers: list[Any] = [StoreUnavailable("down"), StoreUnavailable("down"), 7]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    assert scene.assignment.wait_for_store(ask) == 7
    assert alarms == ["store-away", "store-away"]


def test_the_store_is_waited_for_no_longer_than_a_rebalance_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("down")

    monkeypatch.setattr(assignment_module, "STORE_WAIT_SECONDS", -1.0)
    with pytest.raises(StoreUnavailable):
        scene.assignment.wait_for_store(ask)
    monkeypatch.undo()
    scene.stop.set()
    with pytest.raises(StoreUnavailable):
        scene.assignment.wait_for_store(ask)
    assert asked == 2, "each was asked once"


def test_an_error_that_is_no_outage_is_not_waited_for() -> None:
    scene = Scene()

    def ask() -> None:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        scene.assignment.wait_for_store(ask)


def test_a_restarted_partition_is_not_compared_with_its_earlier_commit() -> None:
    scene = Scene()
    scene.run([500], done=1)
    scene.assignment.commit()
    new = scene.assignment.restart(scene.track)
    assert isinstance(new, Track)
    scene.track = new
    scene.run([0], done=1)
    scene.assignment.commit()
    assert scene.consumer.commits == [{PLACE: 501}, {PLACE: 1}]
