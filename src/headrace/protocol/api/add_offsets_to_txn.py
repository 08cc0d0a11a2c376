"""AddOffsetsToTxn (key 25), v0-4: a group's offsets join a producer's transaction.

v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
