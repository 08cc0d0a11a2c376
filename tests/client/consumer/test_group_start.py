"""A group that starts at the end reads no old record and misses no new one, whatever happens.

A seeded simulation: members join, crash, change hands, and fail to commit, while records are
written; all of it may happen between any two questions that a member asks. Clocks are wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as LibraryPartition
from tests.client.kafkas import Kafka, values
from tests.waiting import wait_until

from headrace.client import Consumer
from headrace.client.consumer.group_start import GroupMark, GroupStart, HistoryLimits, find_mark
from headrace.client.consumer.offsets import OffsetReader
from headrace.client.consumer.start import EARLIEST, LATEST, Start
from headrace.protocol.partitions import TopicPartition

SEEDS = 2_000
STEPS = 40
TOPIC = "t"
NO_LIMITS = HistoryLimits(age_ms=-1, records=-1)


class Member:
    """One process: what it owns, where it reads, and its clock."""

    def __init__(self, world: World, reset: Start) -> None:
        skew_ms = world.chance.randrange(-10_000, 10_000)
        self.positions: dict[int, int] = {}
        self.group_start = GroupStart(
            cast(OffsetReader, world),
            "g",
            start=LATEST,
            reset=reset,
            limits=NO_LIMITS,
            now_ms=lambda: 100_000 + world.step + skew_ms,
        )


class World:
    """A topic, the commits of a group, and its members; also what `OffsetReader` asks."""

    def __init__(self, seed: int, reset: Start) -> None:
        self.chance = random.Random(seed)
        self.step = 0
        self.logs: list[list[int]] = [[] for _ in range(self.chance.randint(1, 4))]
        self.commits: dict[int, tuple[int, str | None]] = {}
        self.members: list[Member] = []
        self.read: set[tuple[int, int]] = set()
        self.began_step: int | None = None
        self.committed_step: int | None = None
        self._reset = reset
        self._depth = 0
        self._is_calm = False

    # -- what a member asks; anything may happen in between ------------------------------------

    def oldest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._anything()
        return dict.fromkeys(places, 0)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._anything()
        return {place: len(self.logs[place[1]]) for place in places}

    def ends_of_available(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.ends(places)

    def since(self, places: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        assert not list(places), "with the ends in the mark, no clock is asked"
        return {}

    def at(
        self, places: Iterable[TopicPartition], start: Start, now_ms: int
    ) -> dict[TopicPartition, int]:
        raise AssertionError("a group that starts at the end is never begun by its reset policy")

    def committed(self, places: Iterable[TopicPartition]) -> list[Any]:
        self._anything()
        asked = [(number, *self.commits.get(number, (-1001, None))) for _, number in places]
        return [
            LibraryPartition(TOPIC, number, offset, metadata)
            if metadata
            else LibraryPartition(TOPIC, number, offset)
            for number, offset, metadata in asked
        ]

    def partitions_apart(self, _topic: str) -> int:
        self._anything()
        return len(self.logs)

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(self.chance.randrange(20)):
            self._write()
        # Several may start together, before any of them has committed.
        self.members = [Member(self, self._reset) for _ in range(self.chance.randint(1, 3))]
        self._rebalance()
        for _ in range(STEPS):
            self.chance.choice(
                [self._write, self._join, self._crash, self._rebalance, self._read, self._commit]
            )()
        self._is_calm = True
        # In the end one member comes that nothing happens to, and reads everything.
        self.members = [Member(self, self._reset)]
        self._rebalance()
        for number, position in self.members[0].positions.items():
            self._note_read(number, position, len(self.logs[number]))

    def _anything(self) -> None:
        self.step += 1
        self._depth += 1
        while not self._is_calm and self._depth < 4 and self.chance.random() < 0.5:
            self.chance.choice(
                [self._write, self._read, self._commit, self._begin_other, self._crash]
            )()
        self._depth -= 1

    def _write(self) -> None:
        self.step += 1
        self.chance.choice(self.logs).append(self.step)
        if len(self.logs) < 6 and self.chance.random() < 0.03:
            self.logs.append([])

    def _join(self) -> None:
        if len(self.members) < 4:
            self.members.append(Member(self, self._reset))
            self._rebalance()

    def _crash(self) -> None:
        if self.members:
            self.members.remove(self.chance.choice(self.members))

    def _rebalance(self) -> None:
        for member in self.members:
            if self.chance.random() < 0.5:
                self._commit_positions(member)
            member.positions = {}
        if not self.members:
            return
        shares: dict[int, list[int]] = {}
        for number in range(len(self.logs)):
            shares.setdefault(self.chance.randrange(len(self.members)), []).append(number)
        waiting = [(self.members[at], numbers) for at, numbers in shares.items()]
        self.chance.shuffle(waiting)
        self._waiting = waiting
        while self._waiting:
            self._begin_other()

    _waiting: list[tuple[Member, list[int]]] = []  # noqa: RUF012

    def _begin_other(self) -> None:
        """One of the members that were given partitions begins them."""
        if not self._waiting:
            return
        member, numbers = self._waiting.pop()
        if member not in self.members:
            return
        if self.began_step is None:
            self.began_step = self.step
        begun, new = member.group_start.find([(TOPIC, number) for number in numbers])
        if member not in self.members:
            return
        if self._is_calm or self.chance.random() < 0.6:
            self._store({it.partition: (it.offset, it.metadata) for it in new})
        for it in begun:
            member.positions[it.partition] = 0 if it.offset == OFFSET_BEGINNING else it.offset

    def _read(self) -> None:
        for member in self.members:
            for number, position in list(member.positions.items()):
                end = self.chance.randint(position, max(position, len(self.logs[number])))
                self._note_read(number, position, end)
                member.positions[number] = end

    def _note_read(self, number: int, start: int, end: int) -> None:
        self.read |= {(number, offset) for offset in range(start, end)}

    def _commit(self) -> None:
        if self.members:
            self._commit_positions(self.chance.choice(self.members))

    def _commit_positions(self, member: Member) -> None:
        mark = member.group_start.marks.get(TOPIC)
        self._store({number: (at, mark) for number, at in member.positions.items()})

    def _store(self, commits: dict[int, tuple[int, str | None]]) -> None:
        if commits:
            self.commits.update(commits)
            if self.committed_step is None:
                self.committed_step = self.step


@pytest.mark.parametrize("reset", [EARLIEST, LATEST], ids=["reset earliest", "reset latest"])
def test_no_old_record_is_read_and_no_new_one_missed(reset: Start) -> None:
    for seed in range(SEEDS):
        world = World(seed, reset)
        world.run()
        assert world.began_step is not None
        old = [
            (number, offset)
            for number, offset in world.read
            if world.logs[number][offset] < world.began_step
        ]
        assert old == [], f"seed {seed}: read what was written before the group began"
        if world.committed_step is not None:
            missed = [
                (number, offset)
                for number, log in enumerate(world.logs)
                for offset, step in enumerate(log)
                if step > world.committed_step and (number, offset) not in world.read
            ]
            assert missed == [], f"seed {seed}: missed what was written after it began"


def test_a_member_whose_first_commit_failed_begins_where_it_was() -> None:
    world = World(0, EARLIEST)
    world.logs = [[1, 2, 3]]
    world._is_calm = True
    member = Member(world, EARLIEST)
    first, _ = member.group_start.find([(TOPIC, 0)])
    world.logs[0].append(4)
    again, noted = member.group_start.find([(TOPIC, 0)])
    assert [it.offset for it in (*first, *again, *noted)] == [3, 3, 3]


def test_a_group_whose_commits_were_deleted_is_new_and_replays_nothing() -> None:
    world = World(0, EARLIEST)
    world.logs = [[1, 2, 3]]
    world._is_calm = True
    member = Member(world, EARLIEST)
    member.group_start.find([(TOPIC, 0)])
    member.group_start.began([TOPIC])
    world.logs[0] += [4, 5]
    found, _ = member.group_start.find([(TOPIC, 0)])
    assert [it.offset for it in found] == [5]


def test_a_mark_with_many_partitions_goes_without_the_ends() -> None:
    large = GroupMark(1000, 500, tuple(range(10**9, 10**9 + 500)))
    assert find_mark([str(large)]) == GroupMark(1000, 500)
    assert find_mark([str(GroupMark(1000, 2, (0, -1)))]) == GroupMark(1000, 2, (0, -1))


def test_two_members_that_start_together_read_no_history(kafka: Kafka) -> None:
    topic = kafka.topic("together", partitions=4)
    for number in range(4):
        kafka.fill(topic, 50, partition=number, word="old")
    settings: dict[str, Any] = {**kafka.quiet, "auto.offset.reset": "earliest"}
    group = f"together-{topic}"
    members = [Consumer(settings, group=group, start="latest") for _ in range(2)]
    read: list[str] = []

    def poll_all() -> None:
        for member in members:
            read.extend(values(member.poll_batch(100, 0.02)))

    def until(condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            poll_all()
            return condition()

        wait_until(holds)

    try:
        for member in members:
            member.subscribe(topic)
        until(lambda: all(len(member.assignment()) == 2 for member in members))
        for number in range(4):
            kafka.fill(topic, 1, partition=number, word=f"new{number}-")
        until(lambda: len(set(read)) >= 4)
    finally:
        for member in members:
            member.close()
    assert sorted(set(read)) == ["new0-0", "new1-0", "new2-0", "new3-0"]
