"""A transaction from its first request to its last, for clients of before and since KIP-890."""

from __future__ import annotations

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

from headrace.broker.node import Node
from headrace.coordinator.transactions.states import State
from headrace.protocol.errors import ErrorCode

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
}
NONE = ErrorCode.NONE
BOTH = pytest.mark.parametrize("since", [False, True], ids=["v1", "v2"])


async def prepared(asker: Asker) -> None:
    await asker.node.groups.ensure_topic()
    await asker.create("t", 2)


def state_of(node: Node, transactional_id: str = "tx") -> State:
    shard = node.transactions.shard_of(transactional_id)
    return shard.coordinator.transactions[transactional_id].state


@BOTH
def test_what_is_committed_is_seen_and_what_is_aborted_never(tmp_path: Path, since: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=since).start()
        for number in range(4):
            for index in range(2):
                assert await producer.send("t", index, b"%d" % number) is NONE
            assert await producer.end(number % 2 == 0) is NONE
        assert await producer.send("t", 0, b"open") is NONE
        for index in range(2):
            assert await read_committed(asker, "t", index) == [b"0", b"2"]
        metrics = asker.node.metrics
        assert metrics.transactions_committed.value == 2
        assert metrics.transactions_aborted.value == 2

    with_broker(tmp_path, scenario, SETTINGS)


@BOTH
def test_readers_of_committed_records_stop_at_the_open_transaction(
    tmp_path: Path, since: bool
) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=since).start()
        await asker.produce("t", 0, b"before")
        assert await producer.send("t", 0, b"open") is NONE
        await asker.produce("t", 0, b"after")
        assert await latest(asker, "t", 0, READ_COMMITTED) == 1
        assert await latest(asker, "t", 0, 0) == 3
        assert await read_committed(asker, "t", 0) == [b"before"]
        assert await producer.end(True) is NONE
        assert await producer.send("t", 1, b"next") is NONE, "waits for the markers"
        assert await latest(asker, "t", 0, READ_COMMITTED) == 4
        assert await read_committed(asker, "t", 0) == [b"before", b"open", b"after"]

    with_broker(tmp_path, scenario, SETTINGS)


@BOTH
def test_offsets_of_a_transaction_count_when_it_commits(tmp_path: Path, since: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=since).start()
        assert await producer.send_offset("g", "t", 0, 5) is NONE
        unstable = await committed_offset(asker, "g", "t", 0)
        assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        plain = await committed_offset(asker, "g", "t", 0, require_stable=False)
        assert (plain.error_code, plain.committed_offset) == (NONE, -1)
        assert await producer.end(True) is NONE
        found = await committed_offset(asker, "g", "t", 0)
        assert (found.error_code, found.committed_offset, found.metadata) == (NONE, 5, "m")
        assert await producer.send_offset("g", "t", 0, 9) is NONE
        assert await producer.end(False) is NONE
        found = await committed_offset(asker, "g", "t", 0)
        assert (found.error_code, found.committed_offset) == (NONE, 5)

    with_broker(tmp_path, scenario, SETTINGS)


@BOTH
def test_a_new_producer_aborts_and_fences_the_one_before(tmp_path: Path, since: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        old = await Transactional(asker, since=since).start()
        assert await old.send("t", 0, b"torn") is NONE
        new = await Transactional(asker, since=since).start()
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
        assert await old.produce("t", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.add("t", 0) is ErrorCode.PRODUCER_FENCED
        assert await old.add_offsets("g") is ErrorCode.PRODUCER_FENCED
        assert await old.commit_offset("g", "t", 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(True) is ErrorCode.PRODUCER_FENCED
        assert asker.node.metrics.transactions_fenced.value == 5
        assert await new.send("t", 0, b"whole") is NONE
        assert await new.end(True) is NONE
        assert await new.add("t", 1) is NONE
        assert await read_committed(asker, "t", 0) == [b"whole"]

    with_broker(tmp_path, scenario, SETTINGS)


def test_older_clients_do_not_know_that_they_are_fenced(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        old = await Transactional(asker, since=False).start()
        await Transactional(asker, since=False).start()
        old.versions = old.versions | {"init": 3, "add": 1, "offsets": 1, "end": 1}
        assert await old.add("t", 0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.add_offsets("g") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(True) is ErrorCode.INVALID_PRODUCER_EPOCH
        expected = (old.producer_id, old.epoch)
        assert await old.init(expected=expected) is ErrorCode.INVALID_PRODUCER_EPOCH

    with_broker(tmp_path, scenario, SETTINGS)


def test_an_older_clients_record_for_a_partition_that_was_not_added_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=False).start()
        assert await producer.add("t", 0) is NONE
        assert await producer.produce("t", 1, b"v") is ErrorCode.INVALID_TXN_STATE
        producer.versions = producer.versions | {"produce": 11}
        assert await producer.produce("t", 1, b"v") is ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.commit_offset("g", "t", 0, 1) is ErrorCode.INVALID_TXN_STATE
        assert await producer.produce("t", 0, b"v") is NONE
        assert await producer.end(True) is NONE
        assert await producer.produce("t", 0, b"late") is ErrorCode.TRANSACTION_ABORTABLE
        assert await latest(asker, "t", 0, READ_COMMITTED) == await latest(asker, "t", 0, 0)

    with_broker(tmp_path, scenario, SETTINGS)


def test_without_verification_older_clients_may_write_anywhere(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=False).start()
        assert await producer.produce("t", 1, b"v") is NONE

    off: dict[str, object] = {"transaction.partition.verification.enable": "false"}
    with_broker(tmp_path, scenario, SETTINGS | off)


def test_all_partitions_of_a_request_are_added_or_none(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=False).start()
        assert await producer.add("t", 0, 7) is ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await producer.add("t", 7, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await producer.add("__consumer_offsets", 0) is error
        assert await producer.produce("t", 0, b"v") is ErrorCode.INVALID_TXN_STATE

    with_broker(tmp_path, scenario, SETTINGS)


def test_every_transaction_of_a_newer_client_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker).start()
        first = producer.epoch
        for number in range(3):
            late = producer.zombie()
            assert await producer.send("t", 0, b"%d" % number) is NONE
            assert await producer.end(True) is NONE
            assert producer.epoch == first + number + 1
            assert await late.produce("t", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(False) is NONE, "an abort of nothing raises it, too"
        assert producer.epoch == first + 4
        assert await producer.end(True) is ErrorCode.INVALID_TXN_STATE

    with_broker(tmp_path, scenario, SETTINGS)


@BOTH
def test_a_repeated_end_is_answered_as_the_first(tmp_path: Path, since: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=since).start()
        assert await producer.send("t", 0, b"v") is NONE
        again = producer.zombie()
        assert await producer.end(True) is NONE
        assert await again.end(True) is NONE, "it waits for the markers"
        assert (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch)
        assert state_of(asker.node) is State.COMPLETE_COMMIT
        twin = producer.zombie()
        if since:
            twin.epoch -= 1
        assert await twin.end(False) is ErrorCode.INVALID_TXN_STATE

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_batch_that_is_sent_twice_is_stored_once(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker).start()
        batch = producer.batch("t", 0, b"v")
        assert await producer.produce_batch("t", 0, batch) is NONE
        assert await producer.produce_batch("t", 0, batch) is NONE
        assert await producer.end(True) is NONE
        assert await producer.send("t", 1, b"w") is NONE
        assert await read_committed(asker, "t", 0) == [b"v"]

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_batch_is_refused_when_the_one_before_it_was(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker).start()
        first, second = (producer.batch("t", 0, value) for value in (b"first", b"second"))
        damaged = bytearray(first)
        damaged[-1] ^= 1
        assert await producer.produce_batch("t", 0, damaged) is ErrorCode.CORRUPT_MESSAGE
        early = await producer.produce_batch("t", 0, second)
        assert early is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for batch in (first, second):
            assert await producer.produce_batch("t", 0, batch) is NONE
        assert await producer.end(True) is NONE
        # The next transaction waits for the markers of this one.
        assert await producer.send("t", 0, b"open") is NONE
        assert await read_committed(asker, "t", 0) == [b"first", b"second"]

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_damaged_batch_is_not_taken_for_one_that_came_too_early(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker).start()
        producer.batch("t", 0, b"never sent")
        damaged = producer.batch("t", 0, b"second")
        damaged[-1] ^= 1
        assert await producer.produce_batch("t", 0, damaged) is ErrorCode.CORRUPT_MESSAGE

    with_broker(tmp_path, scenario, SETTINGS)


def test_an_older_client_may_go_on_where_the_log_has_forgotten_it(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker, since=False).start()
        producer.batch("t", 0, b"long ago")
        assert await producer.send("t", 0, b"v") is NONE

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_transaction_goes_on_after_a_restart_in_partitions_old_and_new(tmp_path: Path) -> None:
    producers: list[Transactional] = []

    async def before(asker: Asker) -> None:
        await prepared(asker)
        producers.append(await Transactional(asker).start())
        assert await producers[0].send("t", 0, b"1") is NONE

    async def after(asker: Asker) -> None:
        producer = producers[0]
        producer.asker = asker
        assert await producer.send("t", 0, b"2") is NONE, "its state was found in the log"
        assert await producer.send("t", 1, b"1") is NONE
        assert await producer.end(True) is NONE
        assert await producer.send("t", 0, b"open") is NONE
        assert await read_committed(asker, "t", 0) == [b"1", b"2"]

    with_broker(tmp_path, before, SETTINGS)
    with_broker(tmp_path, after, SETTINGS)


def test_ids_that_nobody_initialized_are_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        stranger = Transactional(asker, "stranger")
        assert await stranger.find() is NONE
        stranger.producer_id, stranger.epoch = 77, 0
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await stranger.produce("t", 0, b"v") is error
        assert await stranger.add("t", 0) is error
        assert await stranger.commit_offset("g", "t", 0, 1) is error
        assert await stranger.end(True) is error
        nobody = Transactional(asker, "")
        assert await nobody.init() is ErrorCode.INVALID_REQUEST
        assert await nobody.end(True) is ErrorCode.INVALID_REQUEST
        assert await stranger.init(expected=(5, -1)) is ErrorCode.INVALID_REQUEST
        assert await stranger.init(2**31 - 1) is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    with_broker(tmp_path, scenario, SETTINGS)


def test_before_the_topic_is_made_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        producer = Transactional(asker)
        assert await producer.init() is ErrorCode.NOT_COORDINATOR
        assert await producer.end(True) is ErrorCode.NOT_COORDINATOR
        assert "__transaction_state" not in asker.node.catalog.topics
        await producer.start()
        topic = asker.node.catalog.topics["__transaction_state"]
        assert (topic.partitions, topic.config["cleanup.policy"]) == (2, "compact")

    with_broker(tmp_path, scenario, SETTINGS)


def test_epochs_are_spent_and_the_producer_gets_a_new_id(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await prepared(asker)
        producer = await Transactional(asker).start()
        shard = asker.node.transactions.shard_of("tx")
        known = shard.coordinator.transactions["tx"]
        shard.coordinator.transactions["tx"] = known._replace(producer_epoch=2**15 - 3)
        producer.epoch = 2**15 - 3
        first_id = producer.producer_id
        seen = []
        for number in range(4):
            assert await producer.send("t", 0, b"%d" % number) is NONE
            assert await producer.end(True) is NONE
            seen.append((producer.producer_id != first_id, producer.epoch))
        assert seen == [(False, 2**15 - 2), (True, 0), (True, 1), (True, 2)]
        assert await producer.send("t", 1, b"v") is NONE
        assert await read_committed(asker, "t", 0) == [b"0", b"1", b"2", b"3"]

    with_broker(tmp_path, scenario, SETTINGS)
