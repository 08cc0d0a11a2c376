"""SaslAuthenticate (key 36), v0-2: one step of a SASL exchange.

v1: session lifetime (KIP-368). v2: flexible.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, blob, int16, int64, string


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible=2):
    auth_bytes: bytes = blob()


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible=2):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64("1+")
