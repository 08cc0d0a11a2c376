"""RenewDelegationToken (key 39), v1-2: a token lives longer.

v2: flexible.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, blob, int16, int32, int64


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible=2):
    hmac: bytes = blob()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible=2):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
