"""One partition of `__transaction_state`, with the coordinator of the ids that it stores.

Besides what `shard` promises: the markers of a decided transaction are written once the decision is
durable, and the transaction ends once every marker is. Only an older client's next batch has to
wait for the record of that end (see `when_over`): if a crash loses it, the markers are written
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Purgatory, Waiting
from headrace.broker.shard import OnDurable, Shard, Write
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

# How long a request waits for the end of the transaction before it. An error instead would make the
# client retry after a back-off that is many times as long as writing the markers.
PATIENCE_MS = 5_000
# The delay before a write that nobody waits for is tried again.
RETRY_MS = 1_000
# Kafka's limit for a write to this log.
WRITE_TIMEOUT_MS = 30_000

Step = Callable[[TransactionCoordinator, Now], Result]
Respond = Callable[[ErrorCode, Producer], None]

log = logging.getLogger(__name__)


class Attempt(Waiting):
    """A request to the coordinator, tried again when the transaction before it has ended."""

    __slots__ = ("_early", "_respond", "_running", "_shard", "_step", "_transactional_id")

    def __init__(
        self,
        shard: TransactionShard,
        transactional_id: str,
        step: Step,
        respond: Respond,
        early: bool,
    ) -> None:
        super().__init__()
        self._shard = shard
        self._transactional_id = transactional_id
        self._running = False
        self._step = step
        self._respond = respond
        self._early = early

    def try_complete(self) -> bool:
        if self._running:
            return False  # it completed within its own step
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
                self._respond(result.error, result.producer)
        else:
            shard.carry_out(result, partial(self._complete, result))
        return True

    def expire(self) -> None:
        self._respond(self._shard.error or ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)

    def fail(self) -> None:
        self._respond(ErrorCode.UNKNOWN_SERVER_ERROR, NO_PRODUCER)

    def _complete(self, result: Result, log_error: ErrorCode) -> None:
        if log_error:
            self._refuse(log_error)
        else:
            self._respond(result.error, result.producer)

    def _refuse(self, log_error: ErrorCode) -> None:
        self._respond(coordinator_error(log_error), NO_PRODUCER)


class TransactionShard(Shard[TransactionChange]):
    """The coordinator of one partition, with its log, its timers and its waiting requests."""

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
        # By transactional id: callbacks for when the end of a transaction is durable.
        self._not_durable: dict[str, list[OnDurable]] = {}

    def attempt(
        self, transactional_id: str, step: Step, respond: Respond, *, early: bool = False
    ) -> None:
        """Run a step, again and again while an earlier transaction is ending.

        `respond` is called when all is durable, or (`early`) as soon as it is written.
        """
        attempt = Attempt(self, transactional_id, step, respond, early)
        if not attempt.try_complete():
            self._parked.park(attempt, (transactional_id,), PATIENCE_MS)

    def carry_out(self, result: Result, on_durable: OnDurable | None = None) -> ErrorCode:
        """Store and apply effects, and end decided transactions; returns an error if it failed.

        `on_durable` is called when the records are durable, before any marker is written.
        """
        if result.records:
            write = Write(result.records, on_durable)
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
            waiting = self._not_durable[transactional_id] = []
            self.when_surely_durable(partial(self._now_durable, transactional_id, waiting))
        self._parked.check(transactional_id)

    def when_over(self, transactional_id: str, then: OnDurable) -> None:
        """Call `then` when a crash cannot undo the end of a transaction.

        Before that, records of the next one could be taken for its own.
        """
        waiting = self._not_durable.get(transactional_id)
        if waiting is None:
            then(ErrorCode.NONE)
        else:
            waiting.append(then)

    def _now_durable(self, transactional_id: str, waiting: list[OnDurable]) -> None:
        if self._not_durable.get(transactional_id) is waiting:
            del self._not_durable[transactional_id]
        for then in waiting:
            then(ErrorCode.NONE)

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

    def _set_timer(self, transactional_id: str, delay_ms: int | None) -> None:
        fire = partial(self._fire, transactional_id)
        self.set_timer(transactional_id, delay_ms, self.node.timers, fire)

    def _fire(self, transactional_id: str) -> None:
        if self.carry_out(self.coordinator.on_timer(transactional_id, self.now())):
            self._set_timer(transactional_id, self._service.abort_retry_ms)

    def expire(self) -> None:
        for result in self.coordinator.expire(self.now()):
            self.carry_out(result)

    def resume(self) -> None:
        self.carry_out(self.coordinator.resume(self.now()))

    def dismiss(self) -> None:
        self._parked.expire_all()
        not_durable, self._not_durable = self._not_durable, {}
        for waiting in not_durable.values():
            for then in waiting:
                then(ErrorCode.NOT_COORDINATOR)
            waiting.clear()
