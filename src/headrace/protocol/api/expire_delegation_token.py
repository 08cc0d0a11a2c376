"""ExpireDelegationToken (key 40), v1-2: a token ends sooner.

v2: flexible.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, blob, int16, int32, int64


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible=2):
    hmac: bytes = blob()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible=2):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
