"""What stands before requests and responses."""

from __future__ import annotations

import pytest
from tests.protocol.messages import versions

from headrace.protocol.api import REQUESTS
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.codec import encode
from headrace.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    request_header_version,
    response_header,
    response_header_version,
)
from headrace.protocol.primitives import ProtocolError

CLIENT_IDS = [None, "", "console-consumer", "ü" * 100]


@pytest.mark.parametrize("client_id", CLIENT_IDS)
def test_the_header_of_every_request_is_read(client_id: str | None) -> None:
    for key, request in REQUESTS.items():
        for version in versions(request):
            header = RequestHeader(
                request_api_key=key,
                request_api_version=version,
                correlation_id=-5,
                client_id=client_id,
            )
            data = encode(header, request_header_version(key, version))
            read = decode_request_header(b"\xff\xff" + data + b"body", 2, 2 + len(data) + 4)
            assert read == (key, version, -5, client_id, 2 + len(data))


def test_the_header_of_every_response_is_written() -> None:
    for key, request in REQUESTS.items():
        for version in versions(request):
            expected = encode(
                ResponseHeader(correlation_id=2**31 - 1), response_header_version(key, version)
            )
            assert response_header(key, version, 2**31 - 1) == expected


def test_flexible_responses_but_api_versions_have_tagged_fields_in_the_header() -> None:
    assert response_header_version(ApiKey.FETCH, 11) == 0
    assert response_header_version(ApiKey.FETCH, 12) == 1
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert response_header_version(ApiKey.API_VERSIONS, 99) == 0


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    data = bytes.fromhex("0001 000c 00000001 0001 61 02 0001ff 0502abcd")
    assert decode_request_header(data, 0, len(data)) == (1, 12, 1, "a", len(data))


def test_an_unknown_api_is_read_up_to_its_client_id() -> None:
    data = bytes.fromhex("7fff 0063 00000001 0001 61 ffff")
    assert decode_request_header(data, 0, len(data)) == (0x7FFF, 99, 1, "a", 11)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0000 0009 00000001",
        "0000 0009 00000001 fffe",
        "0000 0009 00000001 7fff 61",
        "0000 0009 00000001 0001 ff 00",
        "0000 0009 00000001 ffff",
        "0000 0009 00000001 ffff 01",
        "0000 0009 00000001 ffff 02 000000 0000",
        "0000 0009 00000001 ffff 01 00 ff",
        "0000 0009 00000001 ffff ffffffffffff",
    ],
)
def test_a_malformed_header_is_refused(data: str) -> None:
    frame = bytes.fromhex(data)
    with pytest.raises(ProtocolError):
        decode_request_header(frame, 0, len(frame))


def test_a_header_must_end_with_its_frame() -> None:
    data = bytes.fromhex("0000 0003 00000001 0004 61626364")
    with pytest.raises(ProtocolError, match="cut short"):
        decode_request_header(data, 0, len(data) - 1)
