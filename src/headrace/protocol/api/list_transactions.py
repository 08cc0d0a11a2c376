"""ListTransactions (key 66), v0-2: the transactions of a coordinator.

v1: filter by duration. v2: filter by pattern (KIP-1152).
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, int64, string


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible=0):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="0+", default=None)


class TransactionState(Message):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
