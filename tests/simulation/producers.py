"""Transactional producers, as clients are: they retry, give up, get fenced, and live on as zombies.

Two generations of clients. Those before KIP-890 add partitions by requests of their own and keep
their epoch from one transaction to the next; a request of theirs that arrives late can end up in
the next transaction, and no broker can tell. So, as careful clients do, they begin a new epoch
after any request whose outcome they do not know. Those of KIP-890 get a new epoch with the end of
every transaction and need no such care.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from tests.simulation.clients import Client, Lost
from tests.simulation.history import (
    Accepted,
    Begun,
    Commit,
    History,
    Outcome,
    Place,
    Sent,
    Transaction,
)
from tests.simulation.message_text import CODES
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC
from tests.simulation.world import Process, World

from headrace.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record

T = TypeVar("T")

PARTITIONS = 2
TRANSACTION_KEY = 1
ACKS_ALL = -1
# How often a request is sent before the client gives up on the transaction.
ATTEMPTS_MAX = 6

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
# Of these, those after which the request may have been carried out all the same.
UNSURE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
FENCES = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Versions(NamedTuple):
    """The versions that one kind of client speaks."""

    init: int
    add_partitions: int
    add_offsets: int
    end: int
    commit: int
    produce: int

    @property
    def bumps(self) -> bool:
        """Whether every transaction has an epoch of its own (KIP-890)."""
        return self.end >= 5


LIBRDKAFKA = Versions(init=4, add_partitions=0, add_offsets=0, end=1, commit=3, produce=7)
JAVA_3 = Versions(init=4, add_partitions=3, add_offsets=3, end=3, commit=3, produce=9)
JAVA_4 = Versions(init=5, add_partitions=3, add_offsets=4, end=5, commit=5, produce=12)


class Membership(NamedTuple):
    """In whose name offsets are committed (KIP-447)."""

    member_id: str = ""
    generation: int = -1
    instance: str | None = None


class Fenced(Exception):
    """Another producer has taken this one's transactional id."""


class Abortable(Exception):
    """This transaction cannot be committed any more; the next one may."""


class Producer:
    """One transactional producer in a process of its own."""

    def __init__(
        self,
        process: Process,
        network: Network,
        history: History,
        transactional_id: str,
        versions: Versions,
        timeout_ms: int,
        strange: float,
        *,
        runs: bool = True,
    ) -> None:
        self.process = process
        self.world: World = process.world
        self.client = Client(process, network)
        self.history = history
        self.transactional_id = transactional_id
        self.versions = versions
        self.timeout_ms = timeout_ms
        self.strange = strange
        self.calm = False
        self._id = -1
        self._epoch = -1
        self._begun: Begun | None = None
        self._sequences: dict[int, int] = {}
        # Whether a request of the present epoch may yet arrive.
        self._unsure = False
        if runs:
            process.create_task(self.run())

    async def run(self) -> None:
        """One transaction after the other, until peace comes or another one has its id."""
        while not self.calm:
            try:
                await self.begin_epoch()
                while not self.calm:
                    await self.transact()
                    if self.needs_epoch:
                        break
                    await self.client.pause(0, 1_500)
            except Fenced:
                if self.world.happens(0.4):
                    break
                self.forget()
                await self.client.pause(100, 2_000)
            except (Lost, Abortable):
                await self.client.pause()
        self.process.kill()

    @property
    def needs_epoch(self) -> bool:
        """Whether a careful client begins a new epoch before the next transaction."""
        return self._begun is None or (self._unsure and not self.versions.bumps)

    def forget(self) -> None:
        """Go on as a new producer of the same program."""
        self._id = self._epoch = -1
        self._begun = None

    async def transact(self) -> None:
        """One transaction of some records in some partitions."""
        chance = self.world.chance
        transaction = self.new_transaction()
        partitions = chance.sample(range(PARTITIONS), k=self.world.between(1, PARTITIONS))
        try:
            await self.add_partitions(partitions)
            for _ in range(self.world.between(1, 3)):
                value = f"{transaction.name}.{len(transaction.records)}"
                await self.send(transaction, chance.choice(partitions), value)
                await self.dawdle()
        except Abortable:
            await self.end(transaction, committed=False)
            return
        await self.end(transaction, committed=self.world.happens(0.7))

    def new_transaction(self) -> Transaction:
        transaction = Transaction(
            f"t{self.history.number()}", self.transactional_id, self.client.name
        )
        self.history.transactions.append(transaction)
        return transaction

    async def dawdle(self) -> None:
        """Sometimes take longer than the transaction may last."""
        if not self.calm and self.world.happens(self.strange):
            await self.client.pause(0, self.timeout_ms * 2)

    # Requests.

    async def begin_epoch(self) -> None:
        """Get an id and an epoch, and fence whoever had them."""
        found = await self.client.ask(
            FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION_KEY),
            FindCoordinatorResponse,
            2,
        )
        if found.error_code:
            raise Lost("no coordinator")

        # Who goes on after a doubt says who it is; who begins fences everybody.
        async def ask() -> tuple[ErrorCode, InitProducerIdResponse]:
            answer = await self.client.ask(
                InitProducerIdRequest(
                    transactional_id=self.transactional_id,
                    transaction_timeout_ms=self.timeout_ms,
                    producer_id=self._id,
                    producer_epoch=self._epoch,
                ),
                InitProducerIdResponse,
                self.versions.init,
            )
            return CODES[answer.error_code], answer

        asked_us = self.world.now_us
        told = await self._insist(ask, attempts=50)
        self._id, self._epoch = told.producer_id, told.producer_epoch
        self._begun = Begun(
            self.transactional_id,
            self._id,
            self._epoch,
            self.client.name,
            asked_us,
            self.world.now_us,
        )
        self.history.begun.append(self._begun)
        self._sequences.clear()
        self._unsure = False

    async def add_partitions(self, partitions: list[int]) -> None:
        """Tell the coordinator; newer clients leave that to the broker."""
        if self.versions.bumps:
            return

        async def ask() -> tuple[ErrorCode, None]:
            answer = await self.client.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self._id,
                    v3_and_below_producer_epoch=self._epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)
                    ],
                ),
                AddPartitionsToTxnResponse,
                self.versions.add_partitions,
            )
            codes = [
                CODES[result.partition_error_code]
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            return next((code for code in codes if code), ErrorCode.NONE), None

        await self._insist(self._noted("AddPartitionsToTxn", ask))

    async def send(self, transaction: Transaction, partition: int, value: str) -> None:
        """Produce one record; Abortable if it is not known to be there."""
        sent = Sent(value, partition, self.world.now_us, transaction)
        self.history.sent.append(sent)
        transaction.records.append(sent)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        batch = build_batch(
            [Record(0, 0, None, value.encode())],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        sent.offset = await self._insist(
            self._noted("Produce", lambda: self._produce(partition, batch))
        )

    async def _produce(self, partition: int, batch: bytearray) -> tuple[ErrorCode, int]:
        answer = await self.client.ask(
            ProduceRequest(
                transactional_id=self.transactional_id,
                acks=ACKS_ALL,
                timeout_ms=4_000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC,
                        partition_data=[
                            PartitionProduceData(index=partition, records=memoryview(batch))
                        ],
                    )
                ],
            ),
            ProduceResponse,
            self.versions.produce,
        )
        result = answer.responses[0].partition_responses[0]
        return CODES[result.error_code], result.base_offset

    async def commit_offset(
        self, transaction: Transaction, place: Place, offset: int, membership: Membership
    ) -> None:
        """Commit the place of an input with the transaction."""
        group = place[0]
        if not self.versions.bumps:
            await self._insist(self._noted("AddOffsetsToTxn", lambda: self._add_offsets(group)))
        commit = Commit(
            place,
            offset,
            transaction.name,
            self.world.now_us,
            self.client.name,
            transaction=transaction,
        )
        self.history.commits.append(commit)
        await self._insist(self._noted("TxnOffsetCommit", lambda: self._commit(commit, membership)))

    async def _add_offsets(self, group: str) -> tuple[ErrorCode, None]:
        answer = await self.client.ask(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                group_id=group,
            ),
            AddOffsetsToTxnResponse,
            self.versions.add_offsets,
        )
        return CODES[answer.error_code], None

    async def _commit(self, commit: Commit, membership: Membership) -> tuple[ErrorCode, None]:
        group, partition = commit.place
        answer = await self.client.ask(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self._id,
                producer_epoch=self._epoch,
                generation_id_or_member_epoch=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=commit.offset or 0,
                                committed_metadata=commit.mark,
                            )
                        ],
                    )
                ],
            ),
            TxnOffsetCommitResponse,
            self.versions.commit,
        )
        return CODES[answer.topics[0].partitions[0].error_code], None

    async def end(self, transaction: Transaction, *, committed: bool) -> None:
        """Commit or abort; what comes of it is noted in the transaction."""
        transaction.committed = committed
        transaction.decided_us = self.world.now_us
        lost = False

        async def ask() -> tuple[ErrorCode, EndTxnResponse]:
            nonlocal lost
            try:
                answer = await self.client.ask(
                    EndTxnRequest(
                        transactional_id=self.transactional_id,
                        producer_id=self._id,
                        producer_epoch=self._epoch,
                        committed=committed,
                    ),
                    EndTxnResponse,
                    self.versions.end,
                )
            except Lost:
                lost = True
                raise
            error = CODES[answer.error_code]
            lost = lost or error in UNSURE
            return error, answer

        try:
            answer = await self._insist(self._noted("EndTxn", ask), attempts=30)
        except (Fenced, Abortable):
            # Said at once, it means that the transaction has not been committed and cannot be.
            if not lost:
                self._conclude(transaction, Outcome.REFUSED)
            raise
        self._conclude(transaction, Outcome.DONE)
        if self.versions.bumps:
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
            self._unsure = False

    def _conclude(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        transaction.answered_us = self.world.now_us
        for commit in self.history.commits:
            if commit.transaction is transaction:
                commit.outcome = outcome if transaction.committed else Outcome.REFUSED
                commit.answered_us = self.world.now_us

    # Trying.

    def _noted(
        self, what: str, ask: Callable[[], Awaitable[tuple[ErrorCode, T]]]
    ) -> Callable[[], Awaitable[tuple[ErrorCode, T]]]:
        """The same request; if it is accepted, that is noted with the time it was sent."""

        async def noted() -> tuple[ErrorCode, T]:
            sent_us, producer_id, epoch = self.world.now_us, self._id, self._epoch
            error, answer = await ask()
            if not error and self._begun is not None:
                self.history.accepted.append(
                    Accepted(
                        self.transactional_id,
                        producer_id,
                        epoch,
                        self.client.name,
                        what,
                        sent_us,
                        self._begun,
                    )
                )
            return error, answer

        return noted

    async def _insist(
        self, ask: Callable[[], Awaitable[tuple[ErrorCode, T]]], attempts: int = ATTEMPTS_MAX
    ) -> T:
        """Ask until there is an answer that counts."""
        for _ in range(attempts):
            try:
                error, answer = await ask()
            except Lost:
                self._unsure = True
                await self.client.pause()
                continue
            if not error:
                return answer
            if error in FENCES:
                raise Fenced
            if error not in RETRIABLE:
                self._unsure = True
                raise Abortable(error.name)
            if error in UNSURE:
                self._unsure = True
            await self.client.pause(20, 100)
        self._unsure = True
        raise Abortable("too many attempts")
