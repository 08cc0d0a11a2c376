"""Reading a log of chunks: whatever is mixed, repeated or interrupted, messages come out whole."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.large.logs import (
    NO_LIMITS,
    LogRecord,
    Reader,
    chunks_of,
    record_of,
)

from headrace.client.clock import SystemClock
from headrace.large.errors import LargeBroken, NoDiskSpace
from headrace.large.headers import chunk_headers
from headrace.large.reassembly_machine import ReassemblyLimits
from headrace.large.records import LargeRecord
from headrace.large.spool import MemoryBudget
from headrace.testing import VirtualClock


def bodies(records: list[Any]) -> list[bytes]:
    return [record.value() for record in records]


def make_log(
    messages: list[list[bytes]], chance: random.Random, repeats: float = 0.0
) -> list[LogRecord]:
    """A log with the chunks of all messages mixed, some of them repeated, and holes in between."""
    waiting = [list(range(len(parts))) for parts in messages]
    firsts: dict[int, int] = {}
    log: list[LogRecord] = []
    while any(waiting):
        number = chance.choice([at for at, left in enumerate(waiting) if left])
        index = waiting[number][0]
        if chance.random() >= repeats:
            waiting[number].pop(0)
        offset = (log[-1].at + 1 if log else 0) + chance.randrange(2)
        first = firsts.setdefault(number, offset)
        chunk, part = chunks_of(number, messages[number], first)[index]
        log.append(record_of(offset, chunk, part))
    return log


parts = st.lists(st.binary(max_size=30), min_size=1, max_size=5)
chances = st.integers(0, 1 << 32).map(random.Random)


@given(st.lists(parts, min_size=1, max_size=6), chances)
def test_mixed_and_repeated_chunks_come_out_whole_and_once(
    messages: list[list[bytes]], chance: random.Random
) -> None:
    log = make_log(messages, chance, repeats=0.3)
    reader = Reader(log, SystemClock(), room=MemoryBudget(20, None))
    found = reader.read(0, log[-1].at + 1)
    assert sorted(bodies(found)) == sorted(b"".join(parts) for parts in messages)
    assert reader.receiver.floors() == {}
    assert reader.alarms == []
    assert reader.recalls == 0
    del found
    assert reader.room.left == 20


@settings(max_examples=200)
@given(
    st.lists(parts, min_size=1, max_size=6),
    chances,
    st.booleans(),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_a_reader_that_dies_anywhere_hands_on_every_message(
    messages: list[list[bytes]], chance: random.Random, with_floor: bool, deaths: list[int]
) -> None:
    """By the floor it reads again what is not whole; without, the end brings the beginning back."""
    log = make_log(messages, chance)
    end = log[-1].at + 1
    position = 0
    found: list[bytes] = []
    for reach in [*deaths, end]:
        reader = Reader(log, SystemClock())
        stop = min(max(reach, position), end)
        found += bodies(reader.read(position, stop))
        floor = reader.receiver.floors().get(("big", 0), stop)
        unfinished = [parts for parts in messages if b"".join(parts) not in found]
        assert floor <= stop or not unfinished
        position = min(stop, floor) if with_floor else stop
    assert {*found} == {b"".join(parts) for parts in messages}
    if not with_floor and len({b"".join(parts) for parts in messages}) == len(messages):
        # A position says all of it, so nothing is handed on twice either.
        assert len(found) == len(messages)


@given(parts.filter(lambda given: sum(map(len, given)) > 0), st.data())
def test_a_damaged_message_is_never_handed_on_as_if_it_were_right(
    message: list[bytes], data: st.DataObject
) -> None:
    log = [record_of(at, chunk, part) for at, (chunk, part) in enumerate(chunks_of(1, message, 0))]
    hurt = data.draw(st.sampled_from([record for record in log if record.data]))
    damaged = bytearray(hurt.data or b"")
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    hurt.data = bytes(damaged)
    reader = Reader(log, SystemClock())
    (found,) = reader.read(0, len(log))
    with pytest.raises(LargeBroken):
        found.value()
    assert [alarm.name for alarm in reader.alarms] == ["large-broken"]
    assert found.offset() == log[-1].at


def test_chunks_of_another_message_under_the_same_id_are_found_out() -> None:
    ours, theirs = chunks_of(1, [b"aa", b"bb", b"cc"]), chunks_of(1, [b"xx", b"yy", b"zz"])
    log = [record_of(0, *ours[0]), record_of(1, *theirs[1]), record_of(2, *ours[2])]
    (found,) = Reader(log, SystemClock()).read(0, 3)
    with pytest.raises(LargeBroken, match="not those that were sent"):
        found.value()


def test_what_nobody_finishes_expires_with_an_alarm_and_frees_its_room() -> None:
    clock = VirtualClock()
    log = [record_of(at, *it) for at, it in enumerate(chunks_of(1, [b"a" * 10] * 3)[:2])]
    reader = Reader(
        log, clock, ReassemblyLimits(60_000, 1 << 30, 100, 10**9), MemoryBudget(100, None)
    )
    assert reader.read(0, 2) == []
    assert reader.receiver.floors() == {("big", 0): 0}
    assert reader.room.left == 80
    clock.advance(59_999)
    reader.receiver.expire()
    assert reader.alarms == []
    clock.advance(1)
    reader.receiver.expire()
    assert [alarm.name for alarm in reader.alarms] == ["large-incomplete"]
    assert reader.alarms[0].details["chunks"] == 2
    assert reader.receiver.floors() == {}
    assert reader.room.left == 100


def test_one_that_was_given_up_and_ends_after_all_is_read_again() -> None:
    clock = VirtualClock()
    log = [record_of(at, *it) for at, it in enumerate(chunks_of(1, [b"a", b"b", b"c"], 0))]
    reader = Reader(log, clock, ReassemblyLimits(60_000, 1 << 30, 100, 10**9))
    reader.read(0, 1)
    clock.advance(60_000)
    reader.receiver.expire()
    assert reader.read(1, 2) == []
    assert reader.receiver.floors() == {}
    assert bodies(reader.read(2, 3)) == [b"abc"]
    assert reader.recalls == 1


def test_a_partition_is_not_held_up_by_more_than_its_bound() -> None:
    first = record_of(0, *chunks_of(1, [b"a", b"b"], 0)[0])
    others = [LogRecord(at, b"small", [("h", b"1")]) for at in range(1, 200)]
    chunk = record_of(150, *chunks_of(2, [b"c"])[0])
    others[149] = chunk
    reader = Reader([first, *others], SystemClock(), ReassemblyLimits(10**9, 1 << 30, 100, 100))
    assert len(reader.read(0, 100)) == 99
    assert reader.receiver.floors() == {("big", 0): 0}
    assert len(reader.read(100, 200)) == 100
    assert reader.receiver.floors() == {}
    assert [alarm.name for alarm in reader.alarms] == ["large-incomplete"]


def test_too_many_open_messages_give_up_the_oldest() -> None:
    clock = VirtualClock()
    log = [record_of(at, *chunks_of(at, [b"a", b"b"], at)[0]) for at in range(5)]
    log += [record_of(5 + at, *chunks_of(at, [b"a", b"b"], at)[1]) for at in range(5)]
    reader = Reader(log, clock, ReassemblyLimits(10**9, 1 << 30, 3, 10**9))
    for at in range(5):
        reader.read(at, at + 1)
        clock.advance(1)
    assert [alarm.details["source"] for alarm in reader.alarms] == ["big/0/0", "big/0/1"]
    # Nothing is lost by that: it only has to be read again.
    assert bodies(reader.read(5, 10)) == [b"ab"] * 5
    assert reader.recalls == 2


def test_a_message_above_the_limit_is_broken() -> None:
    log = [record_of(at, *it) for at, it in enumerate(chunks_of(1, [b"a" * 10] * 3))]
    reader = Reader(
        log, SystemClock(), ReassemblyLimits(10**9, 25, 100, 10**9), MemoryBudget(100, None)
    )
    (found,) = reader.read(0, 3)
    assert reader.room.left == 100
    with pytest.raises(LargeBroken, match="too large; the limit is 25 bytes"):
        found.value()


def test_who_cannot_read_back_in_time_gives_up_the_message_and_not_its_place_in_the_group() -> None:
    clock = VirtualClock()
    log = [record_of(at, *it) for at, it in enumerate(chunks_of(1, [b"a", b"b", b"c"], 0))]
    log.append(record_of(3, *chunks_of(2, [b"d"])[0]))
    reader = Reader(log, clock)

    def slowly(*_: object) -> Iterator[Any]:
        while True:
            clock.advance(1_000)
            yield LogRecord(0, b"something else")

    reader.receiver._recall = slowly
    broken, whole = reader.read(2, 4)
    with pytest.raises(LargeBroken, match=r"max\.poll\.interval\.ms"):
        broken.value()
    assert (broken.offset(), whole.value()) == (2, b"d")
    assert [alarm.name for alarm in reader.alarms] == ["large-broken"]
    assert reader.receiver.floors() == {}


def test_what_unpacks_to_more_than_its_reader_has_room_for_is_not_loaded() -> None:
    bomb = gzip.compress(bytes(10_000_000), 9)
    (chunk, data) = chunks_of(1, [bomb])[0]
    record = record_of(0, replace(chunk, codec="gzip"), data)
    reader = Reader([record], SystemClock(), replace(NO_LIMITS, load_bytes_max=1_000_000))
    (found,) = reader.read(0, 1)
    with pytest.raises(LargeBroken, match=r"more than 1000000 bytes .*stream"):
        found.value()
    # Piece by piece it may be read all the same.
    assert sum(map(len, iter(partial(found.stream().read, 65_536), b""))) == 10_000_000


def test_a_full_disk_loses_nothing() -> None:
    """What could not be kept is read again from the topic, and what was whole already stays."""
    log = [record_of(0, *chunks_of(9, [b"done"])[0])]
    log += [record_of(1 + at, *it) for at, it in enumerate(chunks_of(1, [b"a", b"b", b"c"], 1))]
    reader = Reader(log, SystemClock(), room=MemoryBudget(0, "/nowhere/at/all"))
    reader.receiver._memory = MemoryBudget(4, "/nowhere/at/all")
    with pytest.raises(NoDiskSpace, match="nowhere"):
        reader.read(0, 4)
    assert [it.offset() for it in reader.receiver.left()] == [0, 1, 2, 3]
    reader.receiver._memory = MemoryBudget(100, None)
    assert bodies(reader.read(4, 4)) == [b"done", b"abc"]


def test_a_record_that_says_nothing_sensible_is_no_message() -> None:
    bad = LogRecord(0, b"x", [("headrace-large", b"chunk"), ("headrace-large-id", b"1")])
    odd = LogRecord(1, b"x", [("headrace-large", b"parcel")])
    claim = LogRecord(2, b"../../etc/passwd", [("headrace-large", b"claim")])
    reader = Reader([bad, odd, claim], SystemClock())
    found = reader.read(0, 3)
    assert len(found) == len(reader.alarms) == 3
    for record in found:
        with pytest.raises(LargeBroken):
            record.value()


def test_partitions_that_were_taken_away_are_forgotten() -> None:
    log = [record_of(at, *it) for at, it in enumerate(chunks_of(1, [b"a", b"b"], 0))]
    reader = Reader(log, SystemClock())
    assert bodies(reader.read(0, 2)) == [b"ab"]
    # It was not committed, so it comes again when the partition does.
    reader.receiver.forget([("big", 0)])
    assert bodies(reader.read(0, 2)) == [b"ab"]


def test_a_large_record_has_what_the_clients_own_have() -> None:
    chunk, part = chunks_of(1, [b"body"], 0)[0]
    record = LogRecord(7, part, [("mine", b"1"), *chunk_headers(chunk)])
    (found,) = Reader([record], SystemClock(), NO_LIMITS).read(0, 8)
    assert isinstance(found, LargeRecord)
    assert (found.topic(), found.partition(), found.offset()) == ("big", 0, 7)
    assert (found.key(), found.headers(), found.error()) == (b"k", [("mine", b"1")], None)
    assert found.stream().read() == found.value() == b"body"
    assert len(found) == 4
    found.set_value({"decoded": True})
    assert found.value() == {"decoded": True}
