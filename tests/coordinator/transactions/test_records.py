"""The records of `__transaction_state`, byte by byte as Kafka writes and reads them."""

from __future__ import annotations

import pytest

from headrace.coordinator.transactions.records import (
    Transaction,
    TransactionChange,
    decode,
    encode,
)
from headrace.coordinator.transactions.states import State
from headrace.protocol.logs import write_key, write_versioned
from headrace.protocol.logs.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from headrace.protocol.primitives import ProtocolError

KEY = b"\0\0\0\2tx"
FULL = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=State.PREPARE_COMMIT,
    partitions=frozenset({("b", 1), ("a", 0), ("b", 0)}),
    start_ms=1_000,
    last_update_ms=2_000,
    previous_producer_id=7,
    next_producer_id=8,
    client_version=2,
)
# Version; id, epoch, timeout, state; topics; times; tags 0, 1 and 2.
FULL_VALUE = bytes.fromhex(
    "0001"
    "0000000000000007 0003 0000ea60 02"
    "03 0261 02 00000000 00 0262 03 00000000 00000001 00"
    "00000000000007d0 00000000000003e8"
    "03 00 08 0000000000000007 01 08 0000000000000008 02 02 0002"
)


def test_a_transaction_has_these_bytes() -> None:
    assert encode(TransactionChange("tx", FULL)) == (KEY, FULL_VALUE)
    assert decode(KEY, FULL_VALUE) == TransactionChange("tx", FULL)


@pytest.mark.parametrize("state", [s for s in State if s is not State.EMPTY])
def test_every_state_survives_its_record(state: State) -> None:
    change = TransactionChange("tx", FULL._replace(state=state))
    assert decode(*encode(change)) == change


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    empty = FULL._replace(state=State.EMPTY, partitions=frozenset(), start_ms=-1)
    key, value = encode(TransactionChange("tx", empty))
    assert value is not None
    assert value[2 + 15] == 0, "null, not an empty list"
    assert decode(key, value) == TransactionChange("tx", empty)


def test_a_tombstone_forgets_the_id() -> None:
    assert encode(TransactionChange("tx", None)) == (KEY, None)
    assert decode(KEY, None) == TransactionChange("tx", None)


def test_values_of_brokers_before_flexible_records_are_read() -> None:
    value = write_versioned(
        TransactionLogValue(
            producer_id=7,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0])],
            transaction_last_update_timestamp_ms=2_000,
            transaction_start_timestamp_ms=1_000,
        ),
        0,
    )
    change = decode(KEY, value)
    assert change is not None
    assert change.transaction == Transaction(
        7, 3, 60_000, State.ONGOING, frozenset({("a", 0)}), 1_000, 2_000
    )


def test_records_of_other_kinds_are_passed_over() -> None:
    assert decode(b"\0\5\0\0", b"") is None


@pytest.mark.parametrize("cut", range(2, len(FULL_VALUE)))
def test_a_value_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode(KEY, FULL_VALUE[:cut])


def test_a_state_that_does_not_exist_is_refused() -> None:
    value = write_versioned(TransactionLogValue(transaction_status=8), 1)
    with pytest.raises(ProtocolError):
        decode(write_key(TransactionLogKey(transactional_id="tx")), value)
