"""Coordinator records: prefixes, versions, and what newer brokers may have written."""

from __future__ import annotations

import pytest
from tests.protocol.messages import LOG_MESSAGES, at_version, sample, versions

from headrace.protocol.codec import decode, encode
from headrace.protocol.logs import read_key, read_prefix, read_versioned, write_key, write_versioned
from headrace.protocol.logs.consumer_groups import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from headrace.protocol.logs.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.logs.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.schema import Message


@pytest.mark.parametrize("cls", LOG_MESSAGES, ids=lambda cls: cls.__name__)
def test_records_come_back_in_every_version(cls: type[Message]) -> None:
    for version in versions(cls):
        message = at_version(sample(cls), version)
        assert decode(cls, version, encode(message, version)) == message
        assert read_versioned(cls, write_versioned(message, version)) == message


def test_a_key_opens_with_its_record_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=2)
    data = write_key(key)
    assert data == bytes.fromhex("0001 0001 67 0001 74 00000002")
    assert read_prefix(data) == OffsetCommitKey.API_KEY == 1
    assert read_key(OffsetCommitKey, data) == key


def test_a_value_opens_with_its_version() -> None:
    value = OffsetCommitValue(offset=9, leader_epoch=1, metadata="m", commit_timestamp=5)
    data = write_versioned(value, 3)
    assert data == bytes.fromhex("0003 0000000000000009 00000001 0001 6d 0000000000000005")
    assert read_versioned(OffsetCommitValue, data) == value


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    known = write_versioned(ConsumerProtocolSubscription(topics=["t"], rack_id="r"), 3)
    newer = b"\x00\x09" + known[2:] + b"something new"
    assert read_versioned(ConsumerProtocolSubscription, newer).rack_id == "r"


def test_a_tagged_message_that_may_be_null_is_written_even_when_blank() -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata())
    assert read_versioned(ConsumerGroupMemberMetadataValue, write_versioned(value, 0)) == value


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x03\x00"])
def test_a_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_versioned(OffsetCommitValue, data)
