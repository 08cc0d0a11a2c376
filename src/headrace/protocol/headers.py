"""The headers of requests and responses."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from headrace.protocol.api import REQUESTS
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.primitives import Buffer, ProtocolError, skip_tags
from headrace.protocol.schema import VERSION_MAX, Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible=2):
    """v1: client id. v2: tagged fields; the client id keeps its old form, so that a broker can
    read it before it knows the version."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable="0+", compact=False)


class ResponseHeader(Message, versions="0-1", flexible=1):
    """v1: tagged fields."""

    correlation_id: int = int32()


_NEVER = VERSION_MAX + 1
_FLEXIBLE_FROM = {key: request.FLEXIBLE for key, request in REQUESTS.items()}
# A client reads the ApiVersions response before it knows what the broker speaks (KIP-511), so
# that one's header never changes.
_FLEXIBLE_RESPONSE_FROM = {**_FLEXIBLE_FROM, int(ApiKey.API_VERSIONS): _NEVER}
_unpack_head = Struct(">hhih").unpack_from
_pack_plain = Struct(">i").pack
_pack_flexible = Struct(">ix").pack


def request_header_version(api_key: int, api_version: int) -> int:
    """The version of the header of such a request."""
    return 2 if api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """The version of the header of such a response."""
    return 1 if api_version >= _FLEXIBLE_RESPONSE_FROM.get(api_key, _NEVER) else 0


def decode_request_header(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, str | None, int]:
    """Read (api key, api version, correlation id, client id, where the body starts)."""
    try:
        api_key, api_version, correlation_id, size = _unpack_head(buf, pos)
        pos += 10
        if size > 0:
            client_id: str | None = str(buf[pos : pos + size], "utf-8")
            pos += size
        elif size >= -1:
            client_id = None if size else ""
        else:
            raise ProtocolError("the client id's length is negative")
        if api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
            count = buf[pos]
            pos += 1
            if count:
                pos = skip_tags(buf, pos, end, count)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the request header is malformed: {error}") from error
    if pos > end:
        raise ProtocolError("the request header is cut short")
    return api_key, api_version, correlation_id, client_id, pos


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The bytes between a response's length and its body."""
    if api_version >= _FLEXIBLE_RESPONSE_FROM.get(api_key, _NEVER):
        return _pack_flexible(correlation_id)
    return _pack_plain(correlation_id)
