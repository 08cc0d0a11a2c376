"""A produce that fits a template is served and answered exactly as one that is decoded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker import produce_templates
from headrace.protocol.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.api.produce import ProduceRequest, ProduceResponse
from headrace.protocol.errors import ErrorCode
from headrace.testing import BrokerThread

from .wire import Wire, batch_of, produce_request


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    # The kit's fault hooks see every request, so templates are not used with them.
    broker.call(lambda: setattr(broker.broker.server.router, "_hooks", None))
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 3)
        yield wire


def learnt(broker: BrokerThread) -> int:
    """How many templates the connections of a broker have learnt."""
    return broker.call(
        lambda: sum(
            path.learnt
            for connection in broker.broker.server._connections
            for path in connection.fast_paths.values()
            if isinstance(path, produce_templates.ProduceTemplates)
        )
    )


def send(wire: Wire, request: ProduceRequest, version: int) -> ProduceResponse:
    return wire.call(request, ProduceResponse, version)


def topic_id(wire: Wire, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return wire.call(request, MetadataResponse, 12).topics[0].topic_id


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_answers_are_the_same_in_every_version(
    broker: BrokerThread, wire: Wire, version: int, acks: int
) -> None:
    uuid = topic_id(wire, "t")
    for n in range(6):
        request = produce_request("t", batch_of(b"v" * (10 ** (n % 5))), acks, n % 3)
        request.topic_data[0].topic_id = uuid
        (topic,) = send(wire, request, version).responses
        (result,) = topic.partition_responses
        assert (topic.name, topic.topic_id) == (("t", bytes(16)) if version < 13 else ("", uuid))
        assert (result.index, result.error_code, result.base_offset) == (n % 3, 0, n // 3)
        assert result.log_append_time_ms == -1
        assert result.log_start_offset == (0 if version >= 5 else -1)
    assert learnt(broker) == (3 if version >= produce_templates.ProduceTemplates.VERSION_MIN else 0)


def test_a_bad_batch_in_a_repeated_request_is_refused(wire: Wire) -> None:
    assert wire.produce("t", batch_of(b"v")).base_offset == 0
    bad = batch_of(b"v")
    bad[-1] ^= 1
    refused = wire.produce("t", bad)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert refused.error_message
    assert wire.produce("t", batch_of(b"v")).base_offset == 1


@pytest.mark.parametrize("version", [7, 9])
def test_a_request_that_is_cut_ends_the_connection_template_or_not(
    broker: BrokerThread, wire: Wire, version: int
) -> None:
    frame = wire.frame(produce_request("t", batch_of(b"v")), version)
    for cut in range(16, len(frame)):
        with Wire(broker.bootstrap) as other:
            send(other, produce_request("t", batch_of(b"v")), version)
            part = frame[4:cut]
            other.socket.sendall(len(part).to_bytes(4, "big") + part)
            if not other.hung_up():
                # Behind the batch, a missing tag is all that can be missing unnoticed.
                assert cut >= len(frame) - len(produce_templates.TAGS)


def test_a_changed_setting_ends_the_template(wire: Wire) -> None:
    assert wire.produce("t", batch_of(b"v")).base_offset == 0
    change = AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    wire.call(request, IncrementalAlterConfigsResponse, 1)
    assert wire.produce("t", batch_of(b"v")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_topic_made_again_gets_its_own_template(broker: BrokerThread, wire: Wire) -> None:
    for n in range(3):
        assert wire.produce("t", batch_of(b"v")).base_offset == n
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    wire.call(request, DeleteTopicsResponse, 6)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("t", batch_of(b"v")).error_code == unknown
    wire.create_topic("t")
    for n in range(3):
        assert wire.produce("t", batch_of(b"v")).base_offset == n
    assert learnt(broker) == 2


def test_requests_that_never_look_alike_stop_making_templates(
    broker: BrokerThread, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_templates, "TEMPLATES_MAX", 5)
    for n in range(20):
        request = produce_request("t", batch_of(b"v"))
        request.timeout_ms = 10_000 + n
        assert send(wire, request, 9).responses[0].partition_responses[0].base_offset == n
    assert learnt(broker) == 5


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 3_000_000),
    position=st.integers(0, 40),
)
def test_the_batch_is_found_wherever_its_length_says(size: int, position: int) -> None:
    number, prefix = size + 1, bytearray()
    while number >= 0x80:
        prefix.append(number & 0x7F | 0x80)
        number >>= 7
    prefix.append(number)
    assert len(prefix) == produce_templates.uvarint_size(size + 1)
    frame = memoryview(
        bytearray(bytes(position) + bytes(prefix) + b"\1" * size + produce_templates.TAGS)
    )
    found = produce_templates._compact_batch(frame, position, len(frame))
    if size + 1 >= 0x200000:
        assert found is None
    else:
        assert found is not None
        assert found == b"\1" * size
        assert produce_templates._compact_batch(frame, position, len(frame) - 1) is None
