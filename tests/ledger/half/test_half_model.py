"""The half machine on the real state against a simple model, with virtual time and take-overs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.ledger.half.world import GROUP, World

from headrace.ledger.half.commands import CHECK_PREFIX
from headrace.ledger.half.machine import HalfLimits

IDS = ("a", "b", "c")
LIMITS = HalfLimits(
    first_check_ms=6_000,
    check_every_ms=30_000,
    checks_max=2,
    remember_ms=100_000,
    remind_ms=200_000,
)


@dataclass
class Row:
    """An id as a person would keep it on paper."""

    is_prepared: bool = False
    decision: bool | None = None
    checks: int = 0
    is_parked: bool = False
    due_ms: int = 0

    @property
    def state(self) -> str:
        if self.decision is None:
            return "parked" if self.is_parked else "waiting"
        if self.is_prepared:
            return "committed" if self.decision else "rolled back"
        return "early commit" if self.decision else "early rollback"


@dataclass
class Model:
    """What must be seen, asked and rung."""

    now_ms: int
    rows: dict[str, Row] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    asked: int = 0
    alarms: Counter[str] = field(default_factory=Counter)

    def say(self, kind: str, id: str) -> None:
        row = self.rows.get(id)
        if row is None:
            row = self.rows[id] = Row()
        elif (kind == "prepare" and row.is_prepared) or (kind != "prepare" and row.decision):
            self.alarms["half-contradiction"] += kind == "rollback"
            return
        elif kind != "prepare" and row.decision is False:
            self.alarms["half-contradiction"] += kind == "commit"
            return
        if kind == "prepare":
            row.is_prepared = True
            row.due_ms = self.now_ms + LIMITS.first_check_ms
        else:
            row.decision = kind == "commit"
        if row.decision is not None:
            row.due_ms = self.now_ms + LIMITS.remember_ms
            if row.is_prepared and row.decision:
                self.seen.append(id)

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while due := [row.due_ms for row in self.rows.values() if row.due_ms <= end_ms]:
            self.now_ms = min(due)
            for id, row in list(self.rows.items()):
                if row.due_ms == self.now_ms:
                    self.fall_due(id, row)
        self.now_ms = end_ms

    def fall_due(self, id: str, row: Row) -> None:
        if row.decision is not None:
            del self.rows[id]
            self.alarms["half-unprepared"] += row.decision and not row.is_prepared
        elif row.is_parked or row.checks == LIMITS.checks_max:
            row.is_parked = True
            row.due_ms += LIMITS.remind_ms
            self.alarms["half-parked"] += 1
        else:
            row.checks += 1
            row.due_ms += LIMITS.check_every_ms
            self.asked += 1


class HalfRules(RuleBasedStateMachine):
    """Every rule does the same to the world and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(LIMITS)
        self.model = Model(self.world.topics.now_ms)

    def teardown(self) -> None:
        self.world.owner.close()

    @rule(
        kind=st.sampled_from(["prepare", "prepare", "commit", "rollback"]),
        id=st.sampled_from(IDS),
        lane=st.sampled_from([0, 1]),
    )
    def say(self, kind: str, id: str, lane: int) -> None:
        self.world.say(kind, id, lane)
        self.world.settle()
        self.model.say(kind, id)

    @rule(seconds=st.sampled_from([1, 6, 30, 37, 100, 200]))
    def pass_time(self, seconds: int) -> None:
        self.world.advance(seconds * 1_000)
        self.model.advance(seconds * 1_000)

    @rule()
    def take_over(self) -> None:
        self.world.take_over()
        self.world.settle()

    @rule(id=st.sampled_from(IDS), kind=st.sampled_from(["prepare", "commit", "rollback"]))
    def take_over_before_it_is_read(self, id: str, kind: str) -> None:
        """The owner dies with a command in the state topic that it never saw."""
        self.world.say(kind, id)
        self.world.topics.take_in(self.world.machine, 0, 10)
        self.world.take_over()
        self.world.settle()
        self.model.say(kind, id)

    @rule()
    def compact(self) -> None:
        self.world.topics.compact(self.world.owner.position)

    @invariant()
    def readers_agree(self) -> None:
        assert self.world.topics.targets() == self.model.seen

    @invariant()
    def states_agree(self) -> None:
        assert self.world.states() == {id: row.state for id, row in self.model.rows.items()}

    @invariant()
    def questions_agree(self) -> None:
        assert len(self.world.topics.sent.get(CHECK_PREFIX + GROUP, [])) == self.model.asked

    @invariant()
    def alarms_agree(self) -> None:
        assert Counter(name for name, _ in self.world.alarms) == +self.model.alarms


TestHalf = HalfRules.TestCase
TestHalf.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
