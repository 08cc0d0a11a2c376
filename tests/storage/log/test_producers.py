"""Idempotence and transactions as a log sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.batches import NOW_MS, append, append_marker, batch, marker, open_test_log

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import AppendInfo, Log, Origin, OsFileSystem
from headrace.storage.log.producers import Producers

LAST_SEQUENCE = (1 << 31) - 1


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_test_log(OsFileSystem(), str(tmp_path))


def send(
    log: Log,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = False,
) -> AppendInfo:
    data = batch(
        [b"v"] * count,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        transactional=transactional,
    )
    return log.append(data, leader_epoch=0, now_ms=NOW_MS)


def refusal(log: Log, sequence: int, count: int = 1, **options: int) -> ErrorCode:
    end_offset = log.end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, count, **options)  # type: ignore[arg-type]
    assert log.end_offset == end_offset
    return caught.value.code


def test_repeated_batch_is_answered_with_its_first_offset_five_batches_back(log: Log) -> None:
    for number in range(6):
        send(log, number * 2, 2)
    for number in range(1, 6):
        info = send(log, number * 2, 2)
        assert (info.duplicate, info.base_offset, info.last_offset) == (
            True,
            number * 2,
            number * 2 + 1,
        )
    assert refusal(log, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 12


def test_only_the_same_batch_counts_as_repeated(log: Log) -> None:
    send(log, 0, 3)
    assert refusal(log, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 1, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_in_sequences_is_refused(log: Log) -> None:
    send(log, 0)
    assert refusal(log, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 1)


def test_unknown_producer_may_start_anywhere(log: Log) -> None:
    assert send(log, 17).base_offset == 0
    assert send(log, 18).base_offset == 1


def test_older_epoch_is_fenced(log: Log) -> None:
    send(log, 0, epoch=3)
    assert refusal(log, 1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_new_epoch_starts_at_sequence_zero(log: Log) -> None:
    send(log, 0, epoch=0)
    assert refusal(log, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=1)
    assert refusal(log, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=1).duplicate


def test_sequences_wrap_after_the_largest(log: Log) -> None:
    send(log, LAST_SEQUENCE - 1)
    send(log, LAST_SEQUENCE)
    send(log, 0)
    assert send(log, LAST_SEQUENCE).duplicate
    assert refusal(log, LAST_SEQUENCE, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_inside_a_batch(log: Log) -> None:
    send(log, LAST_SEQUENCE - 1, 4)  # ends with sequence 1
    assert send(log, LAST_SEQUENCE - 1, 4).duplicate
    assert refusal(log, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 2)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_producer_id_needs_epoch_and_sequence(log: Log, epoch: int, sequence: int) -> None:
    assert refusal(log, sequence, epoch=epoch) == ErrorCode.INVALID_RECORD


def test_transactional_batch_needs_a_producer_id(log: Log) -> None:
    with pytest.raises(KafkaError) as caught:
        log.append(batch([b"v"], transactional=True), leader_epoch=0, now_ms=NOW_MS)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_refused_batches_change_nothing(log: Log) -> None:
    send(log, 0)
    refusal(log, 5)
    refusal(log, 7, epoch=4)
    producer = log.producers.get(7)
    assert producer is not None
    assert (producer.epoch, producer.next_sequence) == (0, 1)


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(log: Log) -> None:
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2, transactional=True)
    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert [producer.producer_id for producer in log.producers] == [2]


def test_open_transactions_hold_back_the_last_stable_offset(log: Log) -> None:
    append(log, b"plain")
    send(log, 0, producer_id=1, transactional=True)
    send(log, 0, producer_id=2, transactional=True)
    log.high_watermark = 3
    assert log.last_stable_offset == 1
    append_marker(log, 1, 0, commit=True)
    log.high_watermark = 4
    assert log.last_stable_offset == 2
    send(log, 1, producer_id=1, transactional=True)
    append_marker(log, 2, 0, commit=False)
    log.high_watermark = 6
    assert log.last_stable_offset == 4
    append_marker(log, 1, 0, commit=True)
    log.high_watermark = 7
    assert log.last_stable_offset == 7
    assert log.aborted_transactions(0, 7) == [(2, 2)]


def test_plain_batch_inside_a_transaction_is_refused(log: Log) -> None:
    send(log, 0, transactional=True)
    assert refusal(log, 1) == ErrorCode.INVALID_TXN_STATE
    append_marker(log, 7, 0, commit=True)
    send(log, 1)


def test_markers_of_older_epochs_and_coordinators_are_fenced(log: Log) -> None:
    send(log, 0, epoch=4, transactional=True)

    def end(epoch: int, coordinator_epoch: int) -> None:
        data = marker(7, epoch, commit=True, coordinator_epoch=coordinator_epoch)
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    with pytest.raises(KafkaError) as caught:
        end(3, 5)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    end(4, 5)
    with pytest.raises(KafkaError) as caught:
        end(4, 4)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_marker_with_a_new_epoch_resets_the_sequence(log: Log) -> None:
    send(log, 0, transactional=True)
    append_marker(log, 7, 1, commit=False)
    assert refusal(log, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=1)


def test_marker_without_a_transaction_ends_nothing() -> None:
    producers = Producers()
    assert producers.append_marker(1, 0, 5, 0, NOW_MS, True) is None
    assert producers.first_unstable_offset is None
