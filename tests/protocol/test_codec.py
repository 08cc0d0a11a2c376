"""Encoding and decoding, by examples that show a rule each."""

from __future__ import annotations

import pytest

from headrace.protocol.api.api_versions import ApiVersionsRequest
from headrace.protocol.api.create_topics import CreateTopicsRequest
from headrace.protocol.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from headrace.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.codec import decode, decoder, encode, encoder, segments
from headrace.protocol.leaders import LeaderIdAndEpoch
from headrace.protocol.primitives import ProtocolError


def test_plain_versions_have_wide_lengths() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert encode(request, 0) == bytes.fromhex("0001 67 00000007 0001 6d")


def test_flexible_versions_have_compact_lengths_and_tagged_fields() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert encode(request, 4) == bytes.fromhex("02 67 00000007 02 6d 00 00")


def test_a_field_that_a_version_lacks_keeps_its_default() -> None:
    request = HeartbeatRequest(group_id="g", member_id="m", group_instance_id="static")
    assert decode(HeartbeatRequest, 2, encode(request, 2)).group_instance_id is None
    assert decode(HeartbeatRequest, 3, encode(request, 3)).group_instance_id == "static"


def test_a_nullable_message_has_a_mark() -> None:
    absent = encode(DescribeTopicPartitionsRequest(topics=[]), 0)
    present = encode(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t")), 0)
    assert absent == bytes.fromhex("01 000007d0 ff 00")
    assert present == bytes.fromhex("01 000007d0 01 02 74 00000000 00 00")


def test_a_tagged_message_that_says_nothing_is_left_out() -> None:
    silent = PartitionData(current_leader=LeaderIdAndEpoch())
    spoken = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))
    assert encode_partition(silent) == encode_partition(PartitionData())
    assert encode_partition(spoken).endswith(bytes.fromhex("01 01 09 00000001 00000002 00"))


def encode_partition(partition: PartitionData) -> bytes:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    return encode(response, 13)[: -len(b"\x00\x00")]  # without the tags of topic and response


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(HeartbeatResponse(error_code=27), 4)
    assert plain == bytes.fromhex("00000000 001b 00")
    tagged = bytes.fromhex("00000000 001b 02 00 01 ff 8101 00")
    assert decode(HeartbeatResponse, 4, tagged) == HeartbeatResponse(error_code=27)


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ("02 00 00 00 00", "repeated or out of order"),
        ("02 05 00 04 00", "repeated or out of order"),
        ("01 00 05 ff", "larger than what is left"),
        ("01 00 ffffffffff0f", "longer than 5 bytes"),
        ("ffffffff1f", "exceeds 32 bits"),
        ("01", "malformed"),
    ],
)
def test_malformed_tagged_fields_are_refused(tags: str, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode(HeartbeatResponse, 4, bytes.fromhex("00000000 001b" + tags))


def test_a_known_tagged_field_must_fill_its_size() -> None:
    request = FetchRequest(cluster_id="c")
    good = encode(request, 12)
    at = good.index(bytes.fromhex("00 02 02 63"))
    bad = good[: at + 1] + b"\x03" + good[at + 2 :] + b"\x00"
    with pytest.raises(ProtocolError, match="tagged field 0 has a wrong size"):
        decode(FetchRequest, 12, bad)


def test_null_is_refused_where_the_schema_does_not_allow_it() -> None:
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        decode(HeartbeatRequest, 0, bytes.fromhex("ffff 00000007 0001 6d"))
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        decode(HeartbeatRequest, 4, bytes.fromhex("00 00000007 02 6d 00 00"))
    with pytest.raises(ProtocolError, match="topics must not be null"):
        decode(CreateTopicsRequest, 2, bytes.fromhex("ffffffff 00000000 00"))


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(ProtocolError, match="length is negative"):
        decode(HeartbeatRequest, 0, bytes.fromhex("fffe 00000007 0001 6d"))


def test_a_list_longer_than_the_frame_is_refused_before_it_is_made() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        decode(CreateTopicsRequest, 2, bytes.fromhex("7fffffff") + bytes(100))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        decode(ApiVersionsRequest, 3, bytes.fromhex("02 ff 01 00"))


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_a_version_that_does_not_exist_is_an_error_of_the_caller(version: int) -> None:
    with pytest.raises(ValueError, match="has versions 0-4"):
        encode(HeartbeatRequest(), version)
    with pytest.raises(ValueError, match="has versions 0-4"):
        decode(HeartbeatRequest, version, b"")


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(generation_id="7"),  # type: ignore[arg-type]
        HeartbeatRequest(group_id="x" * 40_000),
        HeartbeatRequest(group_id="\ud800"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(request_: HeartbeatRequest) -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0 cannot be written"):
        encode(request_, 0)


def produce_request(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=memoryview(records))
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(partition_data=[partition])])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    frame = bytearray(encode(produce_request(b"opaque"), version))
    for given_as in (frame, memoryview(frame)):
        partition = decode(ProduceRequest, version, given_as).topic_data[0].partition_data[0]
        assert isinstance(partition.records, memoryview)
        assert bytes(partition.records) == b"opaque"
        assert partition.records.obj is frame
        assert not partition.records.readonly


@pytest.mark.parametrize("version", [4, 12, 18])
def test_segments_leave_records_as_they_are(version: int) -> None:
    class OnDisk:
        def __len__(self) -> int:
            return 1_000_000

    slices = [OnDisk(), None, b"in memory"]
    partitions = [PartitionData(partition_index=i, records=part) for i, part in enumerate(slices)]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    parts = segments(response, version)
    assert parts[1] is slices[0]
    assert parts[3] is slices[2]
    solid = b"".join(bytes(1_000_000) if part is slices[0] else bytes(part) for part in parts)
    partitions[0].records = bytes(1_000_000)
    assert solid == encode(response, version)
    assert decode(FetchResponse, version, solid) == response


def test_codecs_are_made_once() -> None:
    assert decoder(FetchRequest, 12) is decoder(FetchRequest, 12)
    assert encoder(FetchRequest, 12) is encoder(FetchRequest, 12)


def test_a_decoder_reads_from_the_middle_of_a_buffer() -> None:
    frame = encode(HeartbeatRequest(group_id="g", member_id="m"), 4)
    buffer = memoryview(b"\xff" * 5 + frame + b"\xff" * 50)
    message, pos = decoder(HeartbeatRequest, 4)(buffer, 5, 5 + len(frame))
    assert message == HeartbeatRequest(group_id="g", member_id="m")
    assert pos == 5 + len(frame)
