"""The transaction coordinator around its state machine: time, restarts, disks, administrators."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.broker.transactional import (
    READ_COMMITTED,
    Transactional,
    committed_offset,
    latest,
    read_committed,
)
from tests.coordinator.clients import turns
from tests.storage.faulty_files import FaultyFileSystem
from tests.waiting import wait_until_async

from headrace.broker import transactions_markers, transactions_shard
from headrace.broker.apis import write_txn_markers
from headrace.broker.partition import Partition
from headrace.coordinator.transactions.records import Transaction
from headrace.coordinator.transactions.states import State
from headrace.metadata.topic_names import TRANSACTION_STATE
from headrace.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headrace.protocol.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headrace.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.testing import VirtualClock

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}
NONE = ErrorCode.NONE
BOTH = pytest.mark.parametrize("since", [False, True], ids=["v1", "v2"])


def known(asker: Asker, transactional_id: str = "tx") -> Transaction | None:
    shard = asker.node.transactions.shard_of(transactional_id)
    return shard.coordinator.transactions.get(transactional_id)


async def advance(clock: VirtualClock, ms: int) -> None:
    """Move the broker's clock; it is moved from outside of its loop."""
    await asyncio.get_running_loop().run_in_executor(None, clock.advance, ms)


def is_over(asker: Asker) -> bool:
    """Whether nothing is undecided anywhere."""
    return all(
        partition.log.first_unstable_offset is None for partition in asker.node.partitions
    ) and all(
        transaction.state not in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
        for shard in asker.node.transactions.shards()
        for transaction in shard.coordinator.transactions.values()
    )


class TestTime:
    @BOTH
    def test_a_transaction_is_aborted_when_its_time_is_up(
        self, tmp_path: Path, since: bool
    ) -> None:
        clock = VirtualClock()

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker, since=since).start(timeout_ms=5_000)
            assert await producer.send("t", 0, b"v") is NONE
            await advance(clock, 4_999)
            assert not is_over(asker)
            await advance(clock, 1)
            await wait_until_async(lambda: is_over(asker))
            assert await latest(asker, "t", 0, READ_COMMITTED) == 2
            assert asker.node.metrics.transactions_timed_out.value == 1
            assert await producer.produce("t", 0, b"w") is ErrorCode.INVALID_PRODUCER_EPOCH
            if since:
                assert await producer.end(False) is NONE, "it may go on under its new epoch"
                assert await producer.send("t", 0, b"x") is NONE
            else:
                assert await producer.end(True) is ErrorCode.PRODUCER_FENCED
            assert await read_committed(asker, "t", 0) == []

        with_broker(tmp_path, scenario, SETTINGS, clock=clock)

    def test_a_jump_of_the_wall_clock_ends_nothing(self, tmp_path: Path) -> None:
        clock = VirtualClock()

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start(timeout_ms=5_000)
            assert await producer.send("t", 0, b"v") is NONE
            clock.jump(1_000_000)
            await advance(clock, 4_000)
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            assert await read_committed(asker, "t", 0) == [b"v"]

        with_broker(tmp_path, scenario, SETTINGS, clock=clock)

    def test_an_abort_that_a_full_disk_refuses_is_tried_again(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        disk = FaultyFileSystem()
        interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start(timeout_ms=5_000)
            assert await producer.send("t", 0, b"v") is NONE
            disk.fail("append", path_has="__transaction_state", error=errno.ENOSPC)
            await advance(clock, 5_000)
            assert not is_over(asker)
            await advance(clock, 300)
            await wait_until_async(lambda: is_over(asker))
            assert asker.node.metrics.transactions_timed_out.value == 1

        with_broker(tmp_path, scenario, SETTINGS | {interval: 300}, clock=clock, files=disk)

    def test_ids_that_nobody_uses_are_forgotten(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        short: dict[str, object] = {
            "transactional.id.expiration.ms": 10_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 1_000,
        }

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            idle = await Transactional(asker, "idle").start()
            busy = await Transactional(asker, "busy").start(timeout_ms=60_000)
            assert await busy.send("t", 0, b"v") is NONE
            await advance(clock, 12_000)
            assert known(asker, "idle") is None
            assert known(asker, "busy") is not None
            assert asker.node.metrics.transactional_ids_expired.value == 1
            assert await idle.add("t", 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await idle.init() is NONE

        with_broker(tmp_path, scenario, SETTINGS | short, clock=clock)


class TestRestart:
    @BOTH
    def test_an_open_transaction_goes_on_where_it_was(self, tmp_path: Path, since: bool) -> None:
        producers: list[Transactional] = []

        async def before(asker: Asker) -> None:
            await asker.create("t", 2)
            await asker.node.groups.ensure_topic()
            producer = await Transactional(asker, since=since).start()
            assert await producer.send("t", 0, b"a") is NONE
            assert await producer.send_offset("g", "t", 0, 7) is NONE
            producers.append(producer)

        async def after(asker: Asker) -> None:
            (producer,) = producers
            producer.asker = asker
            unstable = await committed_offset(asker, "g", "t", 0)
            assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await producer.send("t", 1, b"b") is NONE
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            for index, value in enumerate((b"a", b"b")):
                assert await read_committed(asker, "t", index) == [value]
            assert (await committed_offset(asker, "g", "t", 0)).committed_offset == 7

        with_broker(tmp_path, before, SETTINGS)
        with_broker(tmp_path, after, SETTINGS)

    def test_what_no_coordinator_knows_is_aborted(self, tmp_path: Path) -> None:
        off: dict[str, object] = {"transaction.partition.verification.enable": "false"}

        async def before(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker, since=False).start()
            assert await producer.produce("t", 0, b"never added") is NONE

        async def after(asker: Asker) -> None:
            await wait_until_async(lambda: is_over(asker))
            assert await latest(asker, "t", 0, READ_COMMITTED) == 2
            assert await read_committed(asker, "t", 0) == []

        with_broker(tmp_path, before, SETTINGS | off)
        with_broker(tmp_path, after, SETTINGS)


class TestDisks:
    def test_markers_of_a_deleted_topic_are_left_out(self, tmp_path: Path) -> None:
        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            await asker.create("gone")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"v") is NONE
            assert await producer.send("gone", 0, b"v") is NONE
            await asker.node.topics.delete("gone")
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            assert await read_committed(asker, "t", 0) == [b"v"]

        with_broker(tmp_path, scenario, SETTINGS)

    def test_markers_that_a_full_disk_refuses_are_written_when_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactions_markers, "RETRY_MS", 10)
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await asker.create("t", 2)
            producer = await Transactional(asker).start()
            for index in range(2):
                assert await producer.send("t", index, b"v") is NONE
            disk.fail("append", path_has="/t-1/", times=3, error=errno.ENOSPC)
            assert await producer.end(True) is NONE, "the decision itself is durable"
            assert await producer.send("t", 0, b"w") is NONE, "waits for the marker"
            for index in range(2):
                assert await read_committed(asker, "t", index) == [b"v"]

        with_broker(tmp_path, scenario, SETTINGS, files=disk)

    def test_a_marker_is_tried_again_though_another_is_on_a_disk_that_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactions_markers, "RETRY_MS", 10)
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            healthy, failing = await two_disks(asker)
            producer = await Transactional(asker).start()
            for index in range(2):
                assert await producer.send("t", index, b"v") is NONE
            disk.fail("append", path_has="/t-0/", error=errno.ENOSPC)
            disk.fail("sync", path_has="/t-1/")
            assert await producer.end(True) is NONE, "the decision itself is durable"
            await wait_until_async(lambda: healthy.log.first_unstable_offset is None)
            assert await read_committed(asker, "t", 0) == [b"v"]
            await wait_until_async(lambda: failing.error is ErrorCode.KAFKA_STORAGE_ERROR)
            transaction = known(asker)
            assert transaction is not None
            assert transaction.state is State.PREPARE_COMMIT, "not over while a marker may be lost"

        with_broker(tmp_path, scenario, SETTINGS | on_two_disks(tmp_path), files=disk)

    def test_a_transaction_is_over_when_neither_syncs_nor_retries_are_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactions_markers, "RETRY_MS", 10)
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await asker.create("t", 2)
            producer = await Transactional(asker).start()
            for index in range(2):
                assert await producer.send("t", index, b"v") is NONE
            disk.fail("append", path_has="/t-0/", error=errno.ENOSPC)
            gate = disk.hold("sync", path_has="/t-1/")
            try:
                assert await producer.end(True) is NONE
                retried = asker.node.partitions.get("t", 0)
                assert retried is not None
                await wait_until_async(lambda: retried.log.first_unstable_offset is None)
                transaction = known(asker)
                assert transaction is not None
                assert transaction.state is State.PREPARE_COMMIT, "a marker is not durable yet"
            finally:
                gate.set()
            await wait_until_async(lambda: is_over(asker))
            for index in range(2):
                assert await read_committed(asker, "t", index) == [b"v"]

        with_broker(tmp_path, scenario, SETTINGS, files=disk)

    def test_a_decision_that_cannot_be_written_is_not_made(self, tmp_path: Path) -> None:
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"v") is NONE
            disk.fail("append", path_has="__transaction_state", error=errno.ENOSPC)
            assert (await producer.end(True)).retriable
            transaction = known(asker)
            assert transaction is not None
            assert transaction.state is State.ONGOING
            assert await producer.end(True) is NONE

        with_broker(tmp_path, scenario, SETTINGS, files=disk)

    def test_who_waits_too_long_for_markers_is_told_to_come_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transactions_shard, "PATIENCE_MS", 50)
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"v") is NONE
            gate = disk.hold("sync", path_has="/t-0/")
            try:
                assert await producer.end(True) is NONE
                assert await producer.add("t", 0) is ErrorCode.CONCURRENT_TRANSACTIONS
                assert await producer.send("t", 0, b"w") is ErrorCode.CONCURRENT_TRANSACTIONS
                assert await Transactional(asker).init() is ErrorCode.CONCURRENT_TRANSACTIONS
            finally:
                gate.set()
            await wait_until_async(lambda: is_over(asker))

        with_broker(tmp_path, scenario, SETTINGS, files=disk)

    def test_who_waits_for_markers_is_told_when_the_coordinators_disk_fails(
        self, tmp_path: Path
    ) -> None:
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            beside_the_coordinator, _ = await two_disks(asker)
            producer = await Transactional(asker).start()
            assert await producer.send("t", 1, b"v") is NONE
            gate = disk.hold("sync", path_has="/t-1/")
            try:
                assert await producer.end(True) is NONE
                waiting = asyncio.ensure_future(producer.add("t", 0))
                await turns()
                assert not waiting.done()
                asker.node.fail_log_dir(beside_the_coordinator.log.dir, OSError("broken"))
                await turns()
                assert waiting.done(), "and not when its time is up"
                assert await waiting is ErrorCode.NOT_COORDINATOR
            finally:
                gate.set()

        with_broker(tmp_path, scenario, SETTINGS | on_two_disks(tmp_path), files=disk)


class TestDeletion:
    def test_offsets_of_a_deleted_topic_do_not_come_back_with_the_commit(
        self, tmp_path: Path
    ) -> None:
        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            await asker.node.groups.ensure_topic()
            producer = await Transactional(asker).start()
            assert await producer.send_offset("g", "t", 0, 5) is NONE
            await asker.node.topics.delete("t")
            await asker.create("t")
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            assert (await committed_offset(asker, "g", "t", 0)).committed_offset == -1

        with_broker(tmp_path, scenario, SETTINGS)


class TestAdministrators:
    def test_transactions_are_listed_and_described(self, tmp_path: Path) -> None:
        async def scenario(asker: Asker) -> None:
            await asker.create("t", 2)
            producer = await Transactional(asker, "open").start()
            await Transactional(asker, "idle").start()
            assert await producer.send("t", 1, b"v") is NONE
            rows = await listed(asker, ListTransactionsRequest())
            assert rows == {"open": "Ongoing", "idle": "Empty"}
            ongoing = ListTransactionsRequest(state_filters=["Ongoing"])
            assert await listed(asker, ongoing) == {"open": "Ongoing"}
            pattern = ListTransactionsRequest(transactional_id_pattern="i.*")
            assert await listed(asker, pattern) == {"idle": "Empty"}
            nonsense = ListTransactionsRequest(state_filters=["Nonsense"])
            answer = await asker.ask(nonsense, ListTransactionsResponse)
            assert answer.unknown_state_filters == ["Nonsense"]
            bad = ListTransactionsRequest(transactional_id_pattern="(")
            answer = await asker.ask(bad, ListTransactionsResponse)
            assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            request = DescribeTransactionsRequest(transactional_ids=["open", "nobody", ""])
            described = await asker.ask(request, DescribeTransactionsResponse)
            found, missing, empty = described.transaction_states
            assert (found.transaction_state, found.producer_id) == ("Ongoing", producer.producer_id)
            assert [(row.topic, row.partitions) for row in found.topics] == [("t", [1])]
            assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert empty.error_code == ErrorCode.INVALID_REQUEST

        with_broker(tmp_path, scenario, SETTINGS)

    def test_a_transaction_that_hangs_in_a_partition_is_aborted_by_a_marker(
        self, tmp_path: Path
    ) -> None:
        off: dict[str, object] = {"transaction.partition.verification.enable": "false"}

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker, since=False).start()
            assert await producer.produce("t", 0, b"hangs") is NONE
            zombie = await write_marker(asker, producer.producer_id, producer.epoch - 1, "t", 0)
            assert zombie == ErrorCode.INVALID_PRODUCER_EPOCH
            missing = await write_marker(asker, producer.producer_id, 0, "nope", 0)
            assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await latest(asker, "t", 0, READ_COMMITTED) == 0
            assert not await write_marker(asker, producer.producer_id, producer.epoch, "t", 0)
            assert await latest(asker, "t", 0, READ_COMMITTED) == 2
            assert await read_committed(asker, "t", 0) == []

        with_broker(tmp_path, scenario, SETTINGS | off)

    def test_a_late_marker_of_a_producer_with_own_epochs_is_refused(self, tmp_path: Path) -> None:
        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"v") is NONE
            ids = (producer.producer_id, producer.epoch)
            late = await write_marker(asker, *ids, "t", 0, transaction_version=2)
            assert late == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            assert await read_committed(asker, "t", 0) == [b"v"]

        with_broker(tmp_path, scenario, SETTINGS)

    def test_a_marker_on_a_disk_that_fails_is_a_storage_error(self, tmp_path: Path) -> None:
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await two_disks(asker)
            producer = await Transactional(asker).start()
            for index in range(2):
                assert await producer.send("t", index, b"v") is NONE
            disk.fail("sync", path_has="/t-1/")
            ids = (producer.producer_id, producer.epoch)
            errors = await write_markers(asker, *ids, "t", 0, 1)
            assert errors == [NONE, ErrorCode.KAFKA_STORAGE_ERROR]

        with_broker(tmp_path, scenario, SETTINGS | on_two_disks(tmp_path), files=disk)

    def test_a_marker_that_the_disk_never_answers_times_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(write_txn_markers, "PATIENCE_MS", 50)
        disk = FaultyFileSystem()

        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"v") is NONE
            gate = disk.hold("sync", path_has="/t-0/")
            try:
                ids = (producer.producer_id, producer.epoch)
                assert await write_marker(asker, *ids, "t", 0) == ErrorCode.REQUEST_TIMED_OUT
            finally:
                gate.set()

        with_broker(tmp_path, scenario, SETTINGS, files=disk)

    def test_markers_under_a_newer_coordinator_epoch_do_not_stop_ours(self, tmp_path: Path) -> None:
        async def scenario(asker: Asker) -> None:
            await asker.create("t")
            producer = await Transactional(asker).start()
            assert await producer.send("t", 0, b"hidden") is NONE
            ids = (producer.producer_id, producer.epoch)
            assert not await write_marker(asker, *ids, "t", 0, coordinator_epoch=9)
            assert await producer.end(False) is NONE
            assert await producer.send("t", 0, b"shown") is NONE
            assert await producer.end(True) is NONE
            await wait_until_async(lambda: is_over(asker))
            assert await read_committed(asker, "t", 0) == [b"shown"]

        with_broker(tmp_path, scenario, SETTINGS)


async def listed(asker: Asker, request: ListTransactionsRequest) -> dict[str, str]:
    answer = await asker.ask(request, ListTransactionsResponse)
    assert answer.error_code == NONE
    return {row.transactional_id: row.transaction_state for row in answer.transaction_states}


async def write_marker(
    asker: Asker,
    producer_id: int,
    epoch: int,
    topic: str,
    index: int,
    *,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> int:
    """Abort a producer's transaction in one partition; the error."""
    (error,) = await write_markers(
        asker,
        producer_id,
        epoch,
        topic,
        index,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return error


async def write_markers(
    asker: Asker,
    producer_id: int,
    epoch: int,
    topic: str,
    *indexes: int,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> list[int]:
    """Abort a producer's transaction in some partitions of a topic; the errors."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[*indexes])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = await asker.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    return [result.error_code for result in answer.markers[0].topics[0].partitions]


def on_two_disks(folder: Path) -> dict[str, object]:
    """Settings for data on two disks."""
    return {"log.dirs": f"{folder / 'one'},{folder / 'other'}"}


async def two_disks(asker: Asker) -> tuple[Partition, Partition]:
    """Two partitions of a topic, on a disk each; the transactions are with the first."""
    await asker.create("t", 2)
    await asker.node.transactions.ensure_topic()
    first, second = (asker.node.partitions.get("t", index) for index in range(2))
    state = asker.node.partitions.get(TRANSACTION_STATE, 0)
    assert first is not None
    assert second is not None
    assert state is not None
    assert Path(first.log.dir).parent == Path(state.log.dir).parent != Path(second.log.dir).parent
    return first, second
