"""One partition of `__transaction_state` and the coordinator of the ids that live in it.

What `shard` promises, and: the markers of a decided transaction are written once the decision is
durable, and the transaction is over once every marker is. For that last record only an older
client's next batch has to wait (see `when_over`): lost in a crash, it is found missing, and the
markers are written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Purgatory, Waiting
from headrace.broker.shard import Landing, Shard, Write
from headrace.coordinator.effects import Now, ProducerEpoch
from headrace.coordinator.loading import Loader
from headrace.coordinator.transactions.coordinator import TransactionCoordinator
from headrace.coordinator.transactions.effects import NO_PRODUCER, Ending, Producer, Result
from headrace.coordinator.transactions.records import TransactionChange, decode, encode
from headrace.protocol.compression import Codec
from headrace.protocol.error_responses import coordinator_error
from headrace.protocol.errors import ErrorCode
from headrace.protocol.primitives import ProtocolError

if TYPE_CHECKING:
    from headrace.broker.partition import Partition
    from headrace.broker.transactions import TransactionService

# How long a request waits for the transaction before it to be over. Without that, the client would
# be told to come back, and its back-off is many times as long as the writing of markers.
PATIENCE_MS = 5_000
# What a write that nobody waits for is tried again after.
RETRY_MS = 1_000
# Kafka's limit for a write to this log.
WRITE_TIMEOUT_MS = 30_000

Step = Callable[[TransactionCoordinator, Now], Result]
Answer = Callable[[ErrorCode, Producer], None]

log = logging.getLogger(__name__)


class Attempt(Waiting):
    """A request to the coordinator, made again when the transaction before it is over."""

    __slots__ = ("_answer", "_early", "_running", "_shard", "_step", "_transactional_id")

    def __init__(
        self,
        shard: TransactionShard,
        transactional_id: str,
        step: Step,
        answer: Answer,
        early: bool,
    ) -> None:
        super().__init__()
        self._shard = shard
        self._transactional_id = transactional_id
        self._running = False
        self._step = step
        self._answer = answer
        self._early = early

    def try_complete(self) -> bool:
        if self._running:
            return False  # what it set off came to its end at once, and told everybody
        self._running = True
        try:
            return self._try()
        finally:
            self._running = False

    def _try(self) -> bool:
        shard = self._shard
        result = self._step(shard.coordinator, shard.now())
        while result.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            error = shard.carry_out(result)
            if error:
                self._refuse(error)
                return True
            if shard.coordinator.is_settling(self._transactional_id):
                return False
            result = self._step(shard.coordinator, shard.now())
        if self._early or not result.records:
            error = shard.carry_out(result)
            if error:
                self._refuse(error)
            else:
                self._answer(result.error, result.producer)
        else:
            shard.carry_out(result, partial(self._land, result))
        return True

    def expire(self) -> None:
        self._answer(self._shard.error or ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)

    def _land(self, result: Result, log_error: ErrorCode) -> None:
        if log_error:
            self._refuse(log_error)
        else:
            self._answer(result.error, result.producer)

    def _refuse(self, log_error: ErrorCode) -> None:
        self._answer(coordinator_error(log_error), NO_PRODUCER)


class TransactionShard(Shard[TransactionChange]):
    """The coordinator of one partition, with its log, its timers and those who wait."""

    holds = "transactions"

    def __init__(
        self,
        service: TransactionService,
        partition: Partition,
        coordinator: TransactionCoordinator,
    ) -> None:
        super().__init__(service.node, partition, Codec.NONE, WRITE_TIMEOUT_MS)
        self.load_bytes = service.load_bytes
        self._service = service
        self.coordinator = coordinator
        # By transactional id.
        self._parked = Purgatory(service.node.real_timers)
        # By transactional id: who waits until the end of a transaction is durable.
        self._unproven: dict[str, list[Landing]] = {}

    # Requests.

    def attempt(
        self, transactional_id: str, step: Step, answer: Answer, *, early: bool = False
    ) -> None:
        """Run a step, as often as it takes while an earlier transaction is coming to its end.

        The answer comes when all is durable, or (`early`) as soon as it is written.
        """
        attempt = Attempt(self, transactional_id, step, answer, early)
        if not attempt.try_complete():
            self._parked.park(attempt, (transactional_id,), PATIENCE_MS)

    def carry_out(self, result: Result, landing: Landing | None = None) -> ErrorCode:
        """Store and apply, and bring decided transactions to their end; says if it failed.

        `landing` is called when the records are durable, before any marker is written.
        """
        if result.records:
            write = Write(result.records, landing)
            self.write(write)
            if write.error:
                return write.error
        for transactional_id, delay_ms in result.timers:
            self._set_timer(transactional_id, delay_ms)
        self._service.note(result.notes)
        for ending in result.endings:
            self.when_surely_durable(partial(self._settle, ending))
        return ErrorCode.NONE

    def _settle(self, ending: Ending) -> None:
        self._service.markers.settle(ending, partial(self._settled, ending))

    def _settled(self, ending: Ending) -> None:
        if self.error:
            return
        if self.carry_out(self.coordinator.settled(ending, self.now())):
            self.node.real_timers.call_later(RETRY_MS, partial(self._settled, ending))
            return
        transactional_id = ending.transactional_id
        if not ending.has_own_epoch and not self.is_durable:
            waiting = self._unproven[transactional_id] = []
            self.when_surely_durable(partial(self._proven, transactional_id, waiting))
        self._parked.check(transactional_id)

    def when_over(self, transactional_id: str, then: Landing) -> None:
        """Call `then` when a crash could not bring an ended transaction back; before, records of
        the next one could be taken for its own.
        """
        waiting = self._unproven.get(transactional_id)
        if waiting is None:
            then(ErrorCode.NONE)
        else:
            waiting.append(then)

    def _proven(self, transactional_id: str, waiting: list[Landing]) -> None:
        if self._unproven.get(transactional_id) is waiting:
            del self._unproven[transactional_id]
        for then in waiting:
            then(ErrorCode.NONE)

    # The log.

    def encode(self, change: TransactionChange) -> tuple[bytes, bytes | None]:
        return encode(change)

    def replay(self, change: TransactionChange, producer: ProducerEpoch | None) -> None:
        self.coordinator.replay(change)

    def restore(self, loader: Loader) -> int:
        malformed = 0
        for _, key, value in loader.left():
            try:
                change = decode(key, value)
            except ProtocolError:
                malformed += 1
                continue
            if change is not None:
                self.coordinator.replay(change)
        return malformed

    # Time.

    def _set_timer(self, transactional_id: str, delay_ms: int | None) -> None:
        ring = partial(self._ring, transactional_id)
        self.set_timer(transactional_id, delay_ms, self.node.timers, ring)

    def _ring(self, transactional_id: str) -> None:
        if self.carry_out(self.coordinator.on_timer(transactional_id, self.now())):
            self._set_timer(transactional_id, self._service.abort_retry_ms)

    def expire(self) -> None:
        for result in self.coordinator.expire(self.now()):
            self.carry_out(result)

    # Life.

    def resume(self) -> None:
        self.carry_out(self.coordinator.resume(self.now()))

    def dismiss(self) -> None:
        self._parked.expire_all()
        unproven, self._unproven = self._unproven, {}
        for waiting in unproven.values():
            for then in waiting:
                then(ErrorCode.NOT_COORDINATOR)
            waiting.clear()
