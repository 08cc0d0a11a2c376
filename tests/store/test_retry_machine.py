"""Retries with the order of keys, under crashes, rebalances and two processes, against a model.

The model knows only what was sent: how often each message fails. Whatever happens, a message has
its effect exactly once or is a dead letter, never both, and within a key nothing overtakes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.handlers.failing import TOPIC, Crash, Process, Topics, message, spec_of

from headrace.client.message import Message
from headrace.handlers.dead_letters import LATE_MS
from headrace.handlers.policies import Backoff, Retry
from headrace.handlers.retries import LEASE_MS
from headrace.store import Store, open_store
from headrace.store.failed_messages import MessageSelection
from headrace.testing import VirtualClock

KEYS = ("a", "b")
BACKOFF = Backoff("1s", "4s", attempts=2)
IN_PLACE = 1
# After so many failed tries a message is a dead letter.
TRIES = IN_PLACE + BACKOFF.attempts + 1
# Fails so often: not at all, until some stage of the policy, or until after its end.
FAILS = (0, 0, 1, 2, 3, TRIES, TRIES + 1)
MESSAGES = st.tuples(st.sampled_from([*KEYS, None]), st.sampled_from(FAILS))
SELDOM = st.sampled_from([False, False, False, True])


@dataclass
class Sent:
    """A message of the model."""

    key: str | None
    fails: int
    tried: int = 0
    effects: int = 0


class Retrying(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock(now_ms=1_000_000)
        self.store: Store = open_store("sqlite://", clock=self.clock)
        self.store.create()
        self.topics = Topics()
        self.sent: list[Sent] = []
        self.position = 0
        self.committed = 0
        self.is_crashing = False

    @initialize(
        order=st.sampled_from(["key", "key", "partition", "none"]),
        sent=st.lists(MESSAGES, min_size=4, max_size=12),
    )
    def start(self, order: str, sent: list[tuple[str | None, int]]) -> None:
        self.send(sent)
        self.order = order
        self.spec = spec_of(order, Retry(in_place=IN_PLACE, delay=0, then=BACKOFF))
        self.processes = [self.begin(), self.begin()]
        self.owner = 0

    def begin(self) -> Process:
        return Process(self.spec, self.store, self.topics, self.clock, self.handle)

    def handle(self, order: Message) -> None:
        sent = self.sent[order.offset]
        sent.tried += 1
        if self.is_crashing:
            self.is_crashing = False
            raise Crash
        if sent.tried <= sent.fails:
            raise ValueError(f"try {sent.tried}")
        sent.effects += 1

    def message(self, offset: int) -> Message:
        return message(offset, self.sent[offset].key)

    # -- what happens ------------------------------------------------------------------------

    @rule(sent=st.lists(MESSAGES, min_size=1, max_size=3))
    def send(self, sent: list[tuple[str | None, int]]) -> None:
        self.sent += [Sent(key, fails) for key, fails in sent]

    @precondition(lambda self: self.position < len(self.sent))
    @rule(count=st.integers(1, 4), crash=SELDOM)
    def deliver(self, count: int, crash: bool) -> None:
        self.is_crashing = crash
        try:
            for offset in range(self.position, min(self.position + count, len(self.sent))):
                self.processes[self.owner].receive(self.message(offset))
                self.position = offset + 1
        except Crash:
            self.restart(self.owner)
        self.is_crashing = False

    @rule()
    def commit(self) -> None:
        self.committed = self.position

    @rule(late=SELDOM)
    def rebalance(self, late: bool) -> None:
        """The other process takes the partition over, from what was committed."""
        if not late:
            self.commit()
        self.processes[self.owner].failures.revoked(TOPIC, [0])
        self.owner = 1 - self.owner
        self.processes[self.owner].failures.assigned(TOPIC, [0])
        self.position = self.committed

    @rule(number=st.integers(0, 1))
    def restart(self, number: int) -> None:
        self.processes[number] = self.begin()
        if number == self.owner:
            self.position = self.committed

    @rule(number=st.integers(0, 1), times=st.integers(1, 4), crash=SELDOM, silent=SELDOM)
    def retry(self, number: int, times: int, crash: bool, silent: bool = False) -> None:
        """Tries what is due, `times` times; it may die in a handler, or before a letter is sent."""
        self.is_crashing = crash
        self.topics.refusals = [Crash()] if silent else []
        try:
            for _ in range(times):
                self.processes[number].job.step()
                self.clock.advance(BACKOFF.delay_ms(2))
        except Crash:
            self.restart(number)
        self.is_crashing = False
        self.topics.refusals = []

    @rule(ms=st.sampled_from([1, 500, 1000, LATE_MS, LEASE_MS]), freeze=SELDOM)
    def pass_time(self, ms: int, freeze: bool) -> None:
        """Meanwhile a third process may take what is due, and is never heard of again."""
        if freeze:
            self.store.retries.lease("bill", "frozen", self.clock.now_ms(), LEASE_MS, 1)
        self.clock.advance(ms)

    # -- what must hold ----------------------------------------------------------------------

    @property
    def done(self) -> list[int]:
        """Offsets of what had its effect, as the inbox has them."""
        with self.store.read() as tx:
            rows = tx.execute("SELECT id FROM headrace_inbox WHERE consumer = 'bill'")
            return [int(row.id.rpartition("/")[2]) for row in rows]

    @property
    def dead(self) -> list[int]:
        letters = self.store.dead_letters.find(MessageSelection(), with_replayed=True)
        return [letter.message.offset for letter in letters]

    def lane(self, offset: int) -> object:
        key = self.sent[offset].key
        if self.order == "partition":
            return "all"
        return offset if self.order == "none" or key is None else key

    @invariant()
    def nothing_is_both_done_and_dead(self) -> None:
        done = set(self.done)
        assert not done & set(self.dead)
        for offset, sent in enumerate(self.sent):
            assert sent.effects == (offset in done)

    @invariant()
    def nothing_overtakes_in_its_lane(self) -> None:
        settled = {*self.done, *self.dead}
        for offset in settled:
            for earlier in range(offset):
                if self.lane(earlier) == self.lane(offset):
                    assert earlier in settled, f"{offset} came before {earlier}"

    @invariant()
    def only_what_cannot_work_is_dead(self) -> None:
        for offset in self.dead:
            assert self.sent[offset].tried >= TRIES

    @invariant()
    def nothing_that_was_passed_is_forgotten(self) -> None:
        parked = {row.message.offset for row in self.store.retries.find(MessageSelection())}
        for offset in range(self.position):
            assert offset in parked or offset in self.done or offset in self.dead

    def teardown(self) -> None:
        if not hasattr(self, "processes"):
            return
        for _ in range(20 * (len(self.sent) + 1)):
            while self.position < len(self.sent):
                self.deliver(4, False)
            self.retry(0, 1, False)
            self.nothing_overtakes_in_its_lane()
            self.retry(1, 1, False)
            self.nothing_overtakes_in_its_lane()
            self.clock.advance(LEASE_MS)
            if len(self.done) + len(self.dead) == len(self.sent):
                break
        assert sorted([*self.done, *self.dead]) == list(range(len(self.sent)))
        assert self.store.retries.count(MessageSelection()) == 0
        self.retry(0, 1, False)
        in_topic = {sent.headers["headrace-id"] for sent in self.topics.of("orders.dlq")}
        assert in_topic == {f"orders/0/{offset}".encode() for offset in self.dead}
        self.store.close()


Retrying.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestRetrying = Retrying.TestCase
