"""Random histories of one transactional id, with zombies and crashes, and what must hold in all."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.transactions.harness import ID, P0, P1, TIMEOUT_MS, V1, V2, Harness

from headrace.coordinator.transactions.coordinator import EPOCH_MAX
from headrace.coordinator.transactions.effects import NO_PRODUCER, Ending, Producer
from headrace.coordinator.transactions.records import NO_TIMESTAMP, Transaction, TransactionChange
from headrace.coordinator.transactions.states import IDLE, OPEN, SETTLING, State
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

PLACES: tuple[TopicPartition, ...] = (P0, P1, ("__consumer_offsets", 3))

picks = st.integers(0, 50)


@dataclass(eq=False)
class Client:
    """A producer that may have been fenced long ago and not know it."""

    version: int
    producer: Producer = NO_PRODUCER


class TransactionHistory(RuleBasedStateMachine):
    """Clients of one id that do anything at any time, sensible or not."""

    @initialize(epoch=st.sampled_from([None, 3, EPOCH_MAX - 4, EPOCH_MAX - 2]))
    def begin(self, epoch: int | None) -> None:
        self.harness = Harness()
        self.clients = [Client(V1), Client(V2), Client(V2)]
        # The identity that was given out last: it alone may act.
        self.newest = NO_PRODUCER
        # The one before it, which may ask again for an answer that it has not heard.
        self.previous = NO_PRODUCER
        # Where records of the present transaction are that no marker has ended.
        self.written: set[TopicPartition] = set()
        # What was decided of the transaction that is coming to its end.
        self.decision: Ending | None = None
        if epoch is not None:
            self.harness.log.append(TransactionChange(ID, old(epoch)))
            self.harness.restart()
            self.newest = Producer(7, epoch)
            for client in self.clients:
                client.producer = self.newest

    def client(self, pick: int) -> Client:
        return self.clients[pick % len(self.clients)]

    @property
    def state(self) -> State | None:
        known = self.harness.coordinator.transactions.get(ID)
        return None if known is None else known.state

    # What clients do.

    @rule(pick=picks, goes_on=st.booleans())
    def init(self, pick: int, goes_on: bool) -> None:
        client = self.client(pick)
        expected = client.producer if goes_on and client.producer != NO_PRODUCER else None
        fenced, previous, before = self.newest, self.previous, self.state
        result = self.harness.init(expected)
        self.note_endings()
        if not result.error:
            assert self.state is State.EMPTY
            assert result.producer != fenced or expected is not None
            # Of an id that was forgotten, nobody is known to be a zombie.
            assert before is None or expected in (None, fenced, previous), "no zombie goes on"
            client.producer = result.producer
            self.promote(result.producer)
        elif result.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            assert self.state in SETTLING

    @rule(pick=picks, places=st.sets(st.sampled_from(PLACES), min_size=1))
    def add(self, pick: int, places: set[TopicPartition]) -> None:
        client = self.client(pick)
        if client.producer == NO_PRODUCER:
            return
        result = self.harness.add(*places, producer=client.producer, version=client.version)
        if not result.error:
            self.check_not_fenced(client)
            assert self.state is State.ONGOING
            assert places <= self.harness.known.partitions

    @rule(pick=picks, place=st.sampled_from(PLACES))
    def write(self, pick: int, place: TopicPartition) -> None:
        client = self.client(pick)
        if not self.harness.coordinator.verify(ID, client.producer, place):
            self.check_not_fenced(client)
            self.written.add(place)

    @rule(pick=picks, committed=st.booleans())
    def end(self, pick: int, committed: bool) -> None:
        client = self.client(pick)
        if client.producer == NO_PRODUCER:
            return
        before = self.state
        result = self.harness.end(committed, producer=client.producer, version=client.version)
        if result.error:
            assert not result.endings
            return
        if result.endings:
            self.check_not_fenced(client)
            assert before is State.ONGOING or not committed
            assert result.endings[0].committed is committed
        else:
            # Told again what it may not have heard.
            assert before in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            assert (before is State.COMPLETE_COMMIT) is committed
        self.note_endings()
        if client.version == V2:
            client.producer = result.producer
            self.promote(result.producer)

    def promote(self, producer: Producer) -> None:
        """From now on this one alone may act."""
        if producer != self.newest:
            self.previous, self.newest = self.newest, producer

    def check_not_fenced(self, client: Client) -> None:
        assert client.producer == self.newest, "nobody is accepted after its fence"

    # What happens to them.

    @rule()
    @precondition(lambda self: self.harness.endings)
    def settle(self) -> None:
        """Every marker is durable."""
        ending = self.harness.endings[-1]
        assert self.written <= ending.partitions, "every record has a marker behind it"
        self.harness.settle()
        self.written.clear()
        self.decision = None
        assert self.state in IDLE
        assert not self.harness.known.partitions

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, 3 * TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        was_open = self.state is State.ONGOING
        self.harness.pass_time(ms)
        self.note_endings()
        if was_open and ms >= TIMEOUT_MS:
            assert self.state is State.PREPARE_ABORT, "its time is up"

    @rule()
    def crash(self) -> None:
        self.harness.restart()
        self.note_endings()

    @rule()
    def nobody_comes_for_long(self) -> None:
        wall_ms = self.harness.now.wall_ms + self.harness.settings.id_expiration_ms + 1
        self.harness.now = self.harness.now._replace(wall_ms=wall_ms)
        before = self.state
        for result in self.harness.coordinator.expire(self.harness.now):
            self.harness.carry_out(result)
        if before in OPEN:
            assert self.state is before, "an open transaction is never forgotten"
        else:
            assert self.state is None

    def note_endings(self) -> None:
        """A decision is final, however often it is carried out."""
        for ending in self.harness.endings:
            if self.decision is None:
                self.decision = ending
            assert ending == self.decision
        known = self.harness.coordinator.transactions.get(ID)
        # A fence counts even before its answer is sent.
        if (
            known is not None
            and known.producer_id == self.newest.id
            and known.producer_epoch > self.newest.epoch
        ):
            self.promote(Producer(known.producer_id, known.producer_epoch))

    # What must hold.

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        replayed: Transaction | None = None
        for change in self.harness.log:
            replayed = change.transaction
        known = self.harness.coordinator.transactions.get(ID)
        assert forgotten(known) == forgotten(replayed)

    @invariant()
    def nothing_is_open_without_an_end_to_come(self) -> None:
        if self.state is State.ONGOING:
            assert ID in self.harness.timers
        if self.state in SETTLING:
            assert self.harness.endings
        if self.state is None or self.state in IDLE:
            assert not self.written

    @invariant()
    def records_are_in_partitions_of_the_transaction(self) -> None:
        known = self.harness.coordinator.transactions.get(ID)
        if known is not None:
            assert self.written <= known.partitions


def old(epoch: int) -> Transaction:
    """A transaction that was committed some time ago."""
    return Transaction(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=State.COMPLETE_COMMIT,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        last_update_ms=1_000_000,
    )


def forgotten(known: Transaction | None) -> Transaction | None:
    """A transaction without what a crash makes one forget."""
    return None if known is None else known._replace(last_producer_epoch=-1)


TestTransactionHistory = TransactionHistory.TestCase
TestTransactionHistory.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
