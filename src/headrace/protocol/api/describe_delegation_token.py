"""DescribeDelegationToken (key 41), v1-3: the tokens of owners.

v2: flexible. v3: the requester of a token (KIP-373).
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, int16, int32, int64, string


class DescribeDelegationTokenOwner(Message):
    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible=2):
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+"
    )


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Message):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = blob()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible=2):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
