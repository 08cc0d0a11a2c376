"""The reassembler against a simple model: mixed, repeated, lost, damaged, late and given up."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.large.logs import chunks_of

from headrace.large.reassembly_machine import (
    TABLE,
    Effect,
    Event,
    Reassembly,
    ReassemblyLimits,
    State,
)

EXPIRE_MS = 1_000
BEHIND = 40
OPEN_MAX = 4
LIMITS = ReassemblyLimits(expire_ms=EXPIRE_MS, bytes_max=60, open_max=OPEN_MAX, behind_max=BEHIND)


@dataclass
class Model:
    """What is known of one message, told the simple way."""

    parts: list[bytes]
    came: dict[int, bool] = field(default_factory=dict)
    first: int = 0
    last_ms: int = 0
    # Nothing came yet, or it is open, handed on, or given up.
    state: str = "new"

    @property
    def has_ended(self) -> bool:
        return len(self.parts) - 1 in self.came

    @property
    def is_whole(self) -> bool:
        return len(self.came) == len(self.parts)

    @property
    def is_broken(self) -> bool:
        came = [len(self.parts[index]) for index in self.came]
        return not all(self.came.values()) or sum(came) > LIMITS.bytes_max


class ReassemblyMachine(RuleBasedStateMachine):
    """Chunks come in any order; the model says what each must lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.reassembly = Reassembly(LIMITS)
        self.messages: list[Model] = []
        self.now_ms = 0
        self.offset = 0

    @rule(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=4))
    def send(self, sizes: list[int]) -> None:
        if len(self.messages) < 8:
            self.messages.append(Model([b"x" * size for size in sizes]))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), is_intact=st.sampled_from([True] * 9 + [False]))
    def arrive(self, data: st.DataObject, is_intact: bool) -> None:
        number = data.draw(st.integers(0, len(self.messages) - 1))
        message = self.messages[number]
        index = data.draw(st.integers(0, len(message.parts) - 1))
        chunk, part = chunks_of(number, message.parts, first_offset=0)[index]
        step = self.reassembly.add(chunk, self.offset, len(part), is_intact, self.now_ms)
        assert step.effect == self._expected(message, index, is_intact), step
        self.offset += 1

    def _expected(self, message: Model, index: int, is_intact: bool) -> Effect:
        is_end = index == len(message.parts) - 1
        if message.state == "handed on" or (message.state == "given up" and not is_end):
            return Effect.DROP
        if message.state != "open":
            message.state, message.came, message.first = "open", {}, self.offset
        message.last_ms = self.now_ms
        is_new = index not in message.came
        if is_new:
            message.came[index] = is_intact
        if message.has_ended and (message.is_whole or message.is_broken):
            message.state = "handed on"
            return Effect.BROKEN if message.is_broken else Effect.WHOLE
        if is_end and is_new:
            return Effect.RECALL
        return Effect.KEEP if is_new and not message.is_broken else Effect.DROP

    @rule(ms=st.integers(1, EXPIRE_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(records=st.integers(1, BEHIND))
    def pass_by(self, records: int) -> None:
        self.offset += records

    @rule()
    def give_up(self) -> None:
        given_up = {it.id for it in self.reassembly.give_up(self.now_ms, self.offset)}
        still_open = sorted(
            (it for it in self.messages if it.state == "open"), key=lambda it: it.last_ms
        )
        for number, message in enumerate(self.messages):
            if message.state != "open":
                assert f"{number:032x}" not in given_up
                continue
            must = (
                self.now_ms - message.last_ms >= EXPIRE_MS or self.offset - message.first > BEHIND
            )
            if f"{number:032x}" in given_up:
                # Or it is one of the oldest of too many.
                assert must or len(still_open) > OPEN_MAX
                message.state = "given up"
            else:
                assert not must
        assert len(self.reassembly) <= OPEN_MAX

    @invariant()
    def the_floor_is_the_first_chunk_that_is_needed(self) -> None:
        firsts = [message.first for message in self.messages if message.state == "open"]
        assert self.reassembly.floor == min(firsts, default=None)


def test_the_table_is_one_and_what_could_not_be_kept_is_open_again() -> None:
    assert {state for row in TABLE for state in (row[0], TABLE[row][0])} == set(State)
    assert {event for _, event in TABLE} == set(Event)
    assert {TABLE[row][0] for row in TABLE if row[1] == Event.LOST} == {State.OPEN}
    ((chunk, part),) = chunks_of(1, [b"x"], first_offset=0)
    reassembly = Reassembly(LIMITS)
    for _ in range(2):
        assert reassembly.add(chunk, 7, len(part), True, 0).effect == Effect.WHOLE
        assert reassembly.add(chunk, 7, len(part), True, 0).effect == Effect.DROP
        reassembly.begin_again(chunk.id, 5, 0)
        assert reassembly.floor == 5


def test_a_second_end_does_not_make_its_reader_go_back_again() -> None:
    (_, (late, _)), (_, _, (end, _)) = (chunks_of(1, [b"x"] * count, 0) for count in (2, 3))
    reassembly = Reassembly(LIMITS)
    assert reassembly.add(end, 7, 1, True, 0).effect == Effect.RECALL
    assert reassembly.add(late, 8, 1, True, 0).effect == Effect.KEEP


ReassemblyMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestReassembly = ReassemblyMachine.TestCase
