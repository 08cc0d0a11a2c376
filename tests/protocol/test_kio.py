"""Our bytes are kio's bytes, for every message and version that both know."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.protocol.kio_twins import TWINS, kio_bytes, kio_versions, narrower_fields
from tests.protocol.messages import at_version, messages, versions

from headrace.protocol.codec import decode, encode, segments
from headrace.protocol.schema import Message

# Newer than the Kafka that kio was made from, or older than what Kafka 4 still describes.
UNKNOWN_TO_KIO = {
    "ApiVersions": {5},
    "CreateAcls": {0},
    "CreateTopics": {0, 1},
    "DeleteAcls": {0},
    "DeleteGroups": {3},
    "DeleteTopics": {0},
    "DescribeAcls": {0},
    "DescribeConfigs": {0},
    "Produce": {0, 1, 2},
    "TxnOffsetCommit": {6},
}


@pytest.mark.parametrize("cls", TWINS, ids=lambda cls: cls.__name__)
def test_every_version_is_compared_with_kio_but_a_few(cls: type[Message]) -> None:
    name = cls.__name__.removesuffix("Request").removesuffix("Response")
    assert set(versions(cls)) - set(kio_versions(cls)) == UNKNOWN_TO_KIO.get(name, set())


@pytest.mark.parametrize("examples", [12, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("cls", TWINS, ids=lambda cls: cls.__name__)
def test_bytes_are_those_of_kio_and_decode_back(cls: type[Message], examples: int) -> None:
    special = narrower_fields(cls)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(cls, special))
    def check(drawn: Message) -> None:
        for version in kio_versions(cls):
            message = at_version(drawn, version)
            encoded = encode(message, version)
            assert encoded == kio_bytes(message, version), f"v{version}"
            assert decode(cls, version, encoded) == message, f"v{version}"
            assert b"".join(segments(message, version)) == encoded, f"v{version}"

    check()
