"""The transactional ids of one partition of `__transaction_state`: requests in, effects out.

The coordinator is pure. Its state is a function of the log: only `replay` changes it,
while serving and after a restart.

**When a partition counts as added.** `add` may be answered, and records of the transaction be
written to the partition, once its record is *appended*; only what the client takes for a promise
(an acknowledged produce, committed offsets, an ended transaction) waits until the record is
durable, too. So a power loss can leave records in a partition that no transaction here lists as
open. At its start a node aborts them (see `open_in`), under a newer epoch, so that the producer
cannot take a repeated batch for one that counts. The reverse never happens: a transaction ends here
only after a marker is durable in every partition that it lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.effects import (
    Ending,
    Note,
    Producer,
    Result,
    SetTimer,
)
from headrace.coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Transaction,
    TransactionChange,
)
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.coordinator.transactions.states import (
    IDLE,
    OPEN,
    SETTLING,
    Event,
    State,
    moved,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

EPOCH_MAX = 2**15 - 1
# From this `transaction.version` every end of a transaction raises the epoch (KIP-890).
BUMPING_VERSION = 2
# A new id is requested this many epochs early: a request that waits may need it later.
SPARE_EPOCHS = 8


class TransactionCoordinator:
    """All transactional ids of one partition.

    Results must be carried out in the order of `effects`, each result's records replayed before
    the next request to the same transactional id.
    """

    def __init__(self, settings: TransactionSettings) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._settings = settings
        # By transactional id, on the monotonic clock: when the transaction is aborted, if it is
        # still ongoing by then.
        self._deadlines_ms: dict[str, int] = {}

    def replay(self, change: TransactionChange) -> None:
        """Apply one record of the log."""
        if change.transaction is None:
            self.transactions.pop(change.transactional_id, None)
            self._deadlines_ms.pop(change.transactional_id, None)
        else:
            self.transactions[change.transactional_id] = change.transaction

    def resume(self, now: Now) -> Result:
        """Start serving after replay: decided transactions are ended."""
        out = Result()
        for transactional_id, known in self.transactions.items():
            if known.state in SETTLING:
                out.endings.append(_ending(transactional_id, known))
            elif known.state is State.ONGOING:
                # Only the wall clock knows how long the node was down; it may have been set since.
                elapsed_ms = min(max(now.wall_ms - known.start_ms, 0), known.timeout_ms)
                self._start_clock(transactional_id, known.timeout_ms - elapsed_ms, now, out)
        return out

    def open_in(self) -> Iterator[tuple[TopicPartition, Producer]]:
        """Every partition with a producer whose records there are part of an open transaction."""
        for known in self.transactions.values():
            if known.state not in OPEN:
                continue
            epochs = [known.producer_epoch]
            if known.state in SETTLING:
                # Records have the epoch before, unless an older client ends its transaction.
                before = known.producer_epoch - 1
                epochs = [before] if _has_own_epoch(known) else [before, known.producer_epoch]
            for partition in known.partitions:
                for epoch in epochs:
                    yield partition, Producer(known.producer_id, epoch)

    def is_settling(self, transactional_id: str) -> bool:
        """Whether a decided transaction has markers left to write; other requests must wait."""
        known = self.transactions.get(transactional_id)
        return known is not None and known.state in SETTLING

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init` or `end` may need a new producer id."""
        known = self.transactions.get(transactional_id)
        return known is None or known.producer_epoch >= EPOCH_MAX - SPARE_EPOCHS

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: int,
        now: Now,
    ) -> Result:
        """Give a producer its id and an epoch that fences all before it.

        A transaction that is still open is aborted first: CONCURRENT_TRANSACTIONS asks the client
        to retry when that is done. `expected` is the id and epoch that the client has (KIP-360).
        """
        if not transactional_id:
            return Result(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.timeout_ms_max:
            return Result(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self.transactions.get(transactional_id)
        if known is None:
            return self._init_new(transactional_id, timeout_ms, new_producer_id, now)
        if expected is not None and not _may_go_on(expected, known):
            return self._fenced(transactional_id)
        if known.state in SETTLING:
            return Result(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is State.ONGOING:
            out = Result(ErrorCode.CONCURRENT_TRANSACTIONS)
            # The same client may repeat its request; every other one is fenced.
            last_epoch = NO_PRODUCER_EPOCH if expected is None else known.producer_epoch
            self._fence(transactional_id, known, last_epoch, now, out)
            return out
        producer_id, epoch = known.producer_id, known.producer_epoch
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
        if expected is not None and expected.epoch == known.last_producer_epoch:
            last_epoch = expected.epoch  # a repeated request gets the same answer
        elif epoch >= EPOCH_MAX - 1:
            if new_producer_id == NO_PRODUCER_ID:
                return Result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            producer_id, epoch = new_producer_id, 0
        else:
            epoch += 1
        return self._initialized(
            transactional_id,
            known._replace(
                producer_id=producer_id,
                producer_epoch=epoch,
                timeout_ms=timeout_ms,
                state=moved(known.state, Event.INIT),
                partitions=frozenset(),
                start_ms=NO_TIMESTAMP,
                last_update_ms=now.wall_ms,
                previous_producer_id=known.producer_id,
                next_producer_id=NO_PRODUCER_ID,
                last_producer_epoch=last_epoch,
            ),
        )

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        now: Now,
    ) -> Result:
        """Add partitions to the transaction, which starts with the first of them."""
        error = self._check(transactional_id, producer)
        if error:
            return self._refused(transactional_id, error)
        known = self.transactions[transactional_id]
        added = known.partitions.union(partitions)
        if known.state is State.ONGOING and len(added) == len(known.partitions):
            return Result()
        out = Result()
        start_ms = known.start_ms
        if known.state is not State.ONGOING:
            start_ms = now.wall_ms
            self._start_clock(transactional_id, known.timeout_ms, now, out)
        changed = known._replace(
            state=moved(known.state, Event.ADD),
            partitions=added,
            start_ms=start_ms,
            last_update_ms=now.wall_ms,
            previous_producer_id=known.producer_id,
            client_version=client_version,
        )
        out.records.append(TransactionChange(transactional_id, changed))
        return out

    def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        """Whether records of the transaction may be written to a partition now."""
        error = self._check(transactional_id, producer)
        if error:
            return error
        known = self.transactions[transactional_id]
        if known.state is State.ONGOING and partition in known.partitions:
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    def verified(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> Result:
        """`verify` as a step, for a request that can wait for an earlier transaction to end."""
        return self._refused(transactional_id, self.verify(transactional_id, producer, partition))

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        committed: bool,
        client_version: int,
        new_producer_id: int,
        now: Now,
    ) -> Result:
        """Commit or abort; the decision is final once its record is durable."""
        if not transactional_id:
            return Result(ErrorCode.INVALID_REQUEST)
        known = self.transactions.get(transactional_id)
        if known is None:
            return Result(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = client_version >= BUMPING_VERSION
        repeated = bumps and _is_repeated_end(producer, known)
        if not repeated:
            error = _check_producer(producer, known)
            if error:
                return self._refused(transactional_id, error)
        state = known.state
        if state in SETTLING or (state in _ENDED and (repeated or not bumps)):
            if repeated or not bumps:
                if committed is not _is_commit(state):
                    return Result(ErrorCode.INVALID_TXN_STATE)
                if known.producer_epoch == EPOCH_MAX and state in _ENDED:
                    return self._fenced(transactional_id)  # no epoch is left
            if state in SETTLING:
                return Result(ErrorCode.CONCURRENT_TRANSACTIONS)
            return Result(producer=Producer(known.producer_id, known.producer_epoch))
        if state is not State.ONGOING and (committed or not bumps):
            return Result(ErrorCode.INVALID_TXN_STATE)
        out = Result()
        next_producer_id = NO_PRODUCER_ID
        if bumps and known.producer_epoch >= EPOCH_MAX - 1:
            if new_producer_id == NO_PRODUCER_ID:
                return Result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            next_producer_id = new_producer_id
        decided = known._replace(
            producer_epoch=known.producer_epoch + bumps,
            state=moved(state, Event.COMMIT if committed else Event.ABORT),
            start_ms=known.start_ms if state is State.ONGOING else now.wall_ms,
            partitions=known.partitions if state is State.ONGOING else frozenset(),
            last_update_ms=now.wall_ms,
            previous_producer_id=known.producer_id,
            next_producer_id=next_producer_id,
            client_version=client_version,
            last_producer_epoch=known.producer_epoch if bumps else known.last_producer_epoch,
        )
        self._decide(transactional_id, decided, out)
        out.notes.append((transactional_id, Note.COMMITTED if committed else Note.ABORTED))
        out.producer = Producer(*_after(decided))
        return out

    def settled(self, ending: Ending, now: Now) -> Result:
        """End a transaction: every marker is durable."""
        known = self.transactions.get(ending.transactional_id)
        if known is None or known.state not in SETTLING:
            return Result()  # called twice
        if _ending(ending.transactional_id, known) != ending:
            return Result()  # called late
        producer_id, epoch = _after(known)
        complete = known._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            state=moved(known.state, Event.SETTLE),
            partitions=frozenset(),
            last_update_ms=now.wall_ms,
            previous_producer_id=known.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
        return Result(records=[TransactionChange(ending.transactional_id, complete)])

    def on_timer(self, transactional_id: str, now: Now) -> Result:
        """Handle a timer; its reason may be gone by now."""
        out = Result()
        known = self.transactions.get(transactional_id)
        if known is None or known.state is not State.ONGOING:
            return out
        left_ms = self._deadlines_ms[transactional_id] - now.monotonic_ms
        if left_ms > 0:
            out.timers.append(SetTimer(transactional_id, left_ms))
            return out
        self._fence(transactional_id, known, NO_PRODUCER_EPOCH, now, out)
        out.notes.append((transactional_id, Note.TIMED_OUT))
        return out

    def expire(self, now: Now) -> Iterator[Result]:
        """Remove ids that were unused for long, except those with an open transaction."""
        oldest_ms = now.wall_ms - self._settings.id_expiration_ms
        for transactional_id, known in list(self.transactions.items()):
            if known.state in IDLE and known.last_update_ms <= oldest_ms:
                moved(known.state, Event.EXPIRE)
                yield Result(
                    records=[TransactionChange(transactional_id, None)],
                    notes=[(transactional_id, Note.EXPIRED)],
                )

    def _init_new(
        self, transactional_id: str, timeout_ms: int, new_producer_id: int, now: Now
    ) -> Result:
        if new_producer_id == NO_PRODUCER_ID:
            return Result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._initialized(
            transactional_id,
            Transaction(
                producer_id=new_producer_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                state=State.EMPTY,
                partitions=frozenset(),
                start_ms=NO_TIMESTAMP,
                last_update_ms=now.wall_ms,
            ),
        )

    def _initialized(self, transactional_id: str, transaction: Transaction) -> Result:
        return Result(
            producer=Producer(transaction.producer_id, transaction.producer_epoch),
            records=[TransactionChange(transactional_id, transaction)],
        )

    def _fence(
        self, transactional_id: str, known: Transaction, last_epoch: int, now: Now, out: Result
    ) -> None:
        """Abort an ongoing transaction under an epoch that its producer does not have.

        A newer client that asks to abort gets that epoch and may continue with it.
        """
        aborted = known._replace(
            producer_epoch=known.producer_epoch + 1,
            state=moved(known.state, Event.ABORT),
            last_update_ms=now.wall_ms,
            previous_producer_id=known.producer_id,
            last_producer_epoch=last_epoch,
        )
        self._decide(transactional_id, aborted, out)
        out.notes.append((transactional_id, Note.ABORTED))

    def _decide(self, transactional_id: str, decided: Transaction, out: Result) -> None:
        out.records.append(TransactionChange(transactional_id, decided))
        out.endings.append(_ending(transactional_id, decided))
        out.timers.append(SetTimer(transactional_id, None))

    def _start_clock(self, transactional_id: str, delay_ms: int, now: Now, out: Result) -> None:
        self._deadlines_ms[transactional_id] = now.monotonic_ms + delay_ms
        out.timers.append(SetTimer(transactional_id, delay_ms))

    def _check(self, transactional_id: str, producer: Producer) -> ErrorCode:
        """Whether a producer may use a transactional id now."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        known = self.transactions.get(transactional_id)
        if known is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        error = _check_producer(producer, known)
        if not error and known.state in SETTLING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return error

    def _refused(self, transactional_id: str, error: ErrorCode) -> Result:
        if error is ErrorCode.PRODUCER_FENCED:
            return self._fenced(transactional_id)
        return Result(error)

    def _fenced(self, transactional_id: str) -> Result:
        return Result(ErrorCode.PRODUCER_FENCED, notes=[(transactional_id, Note.FENCED)])


_ENDED = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


def _is_commit(state: State) -> bool:
    return state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


def _ending(transactional_id: str, known: Transaction) -> Ending:
    return Ending(
        transactional_id,
        Producer(known.producer_id, known.producer_epoch),
        _is_commit(known.state),
        known.partitions,
        _has_own_epoch(known),
    )


def _has_own_epoch(known: Transaction) -> bool:
    return known.client_version >= BUMPING_VERSION


def _after(known: Transaction) -> tuple[int, int]:
    """The producer id and epoch for the client's next transaction."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return known.next_producer_id, 0
    return known.producer_id, known.producer_epoch


def _check_producer(producer: Producer, known: Transaction) -> ErrorCode:
    """Whether the client has the producer id and epoch that the coordinator expects."""
    if known.next_producer_id != NO_PRODUCER_ID and producer == _after(known):
        return ErrorCode.NONE
    if producer.id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _may_go_on(expected: Producer, known: Transaction) -> bool:
    """Whether an InitProducerId comes from the current producer, or repeats its request."""
    if expected.id == known.producer_id:
        return expected.epoch in (known.producer_epoch, known.last_producer_epoch)
    return expected.id == known.previous_producer_id and (
        expected.epoch >= EPOCH_MAX - 1 and expected.epoch == known.last_producer_epoch
    )


def _is_repeated_end(producer: Producer, known: Transaction) -> bool:
    """Whether an EndTxn repeats one that already raised the epoch (KIP-890)."""
    if known.client_version < BUMPING_VERSION or known.state not in SETTLING | _ENDED:
        return False
    if producer.id == known.producer_id:
        return producer.epoch + 1 == known.producer_epoch
    return (
        producer.id == known.previous_producer_id
        and producer.epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
    )
