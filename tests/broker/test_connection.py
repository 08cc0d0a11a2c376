"""Frames in, answers out: order, limits, odd sizes and hang-ups on a real socket."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.broker.node import Node
from headrace.broker.server import DRAIN_SECONDS
from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.api.fetch import FetchResponse
from headrace.protocol.api.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.api.produce import ProduceResponse
from headrace.protocol.errors import ErrorCode
from headrace.storage.log.flush import Flush
from headrace.testing import BrokerThread

from .wire import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Wire,
    batch_of,
    fetch_request,
    produce_request,
    records_of,
)

API_VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1")


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def test_pipelined_answers_come_in_the_order_of_their_requests(wire: Wire) -> None:
    wire.create_topic("t")
    frames = b""
    for n in range(200):
        acks = (-1, 1)[n % 2]
        frames += wire.frame(produce_request("t", batch_of(b"%d" % n), acks), PRODUCE_VERSION)
        if n % 10 == 0:
            frames += wire.frame(API_VERSIONS, 3)
    wire.socket.sendall(frames)
    correlation_ids = [struct.unpack_from(">i", wire.receive_frame())[0] for _ in range(220)]
    assert correlation_ids == sorted(correlation_ids)
    assert len(set(correlation_ids)) == 220


def test_a_request_in_many_small_pieces_is_put_together(wire: Wire) -> None:
    wire.create_topic("t")
    frame = wire.frame(produce_request("t", batch_of(b"x" * 300)), PRODUCE_VERSION)
    for byte in frame:
        wire.socket.sendall(bytes([byte]))
    _, response = wire.receive(ProduceResponse, PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("size", [10_000, 16_384, 65_536, 70_000, 900_000])
def test_frames_of_every_size_arrive_whole(wire: Wire, size: int) -> None:
    wire.create_topic("t")
    for n in range(3):
        value = bytes([n]) * size
        result = wire.produce("t", batch_of(value))
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, n)
        assert value in bytes(records_of(wire.fetch("t", n)))


def test_acks_0_gets_no_answer_and_does_not_hold_the_line(wire: Wire) -> None:
    wire.create_topic("t")
    wire.send(produce_request("t", batch_of(b"silent"), acks=0), PRODUCE_VERSION)
    result = wire.produce("t", batch_of(b"loud"))
    assert result.base_offset == 1


def test_a_waiting_fetch_holds_the_line_of_its_connection_only(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as reader, Wire(broker.bootstrap) as writer:
        writer.create_topic("t")
        waiting = fetch_request("t", 0, max_wait_ms=60_000)
        first = reader.send(waiting, FETCH_VERSION)
        second = reader.send(API_VERSIONS, 3)
        writer.produce("t", batch_of(b"wake up"), acks=1)
        answered, response = reader.receive(FetchResponse, FETCH_VERSION)
        assert answered == first
        assert b"wake up" in bytes(records_of(response))
        assert reader.receive(ApiVersionsResponse, 3)[0] == second


def test_a_future_version_of_api_versions_is_answered_in_the_oldest_format(wire: Wire) -> None:
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\0\xff\xff\xff"
    wire.socket.sendall(struct.pack(">i", len(body)) + body)
    correlation_id, response = wire.receive(ApiVersionsResponse, 0)
    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    # As Kafka answers: a client that gets more than this takes it for all there is to know.
    assert [(api.api_key, api.max_version) for api in response.api_keys] == [(18, 4)]


def test_bytes_behind_a_request_are_ignored(wire: Wire) -> None:
    frame = wire.frame(MetadataRequest(topics=None), 12) + bytes(3)
    wire.socket.sendall(struct.pack(">i", len(frame) - 4) + frame[4:])
    assert wire.receive(MetadataResponse, 12)[1].brokers


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
    ids=["negative", "zero", "short", "huge", "unknown-key", "version", "produce-2", "http", "tls"],
)
def test_frames_that_make_no_sense_end_the_connection(broker: BrokerThread, frame: bytes) -> None:
    with Wire(broker.bootstrap) as bad, Wire(broker.bootstrap) as good:
        bad.socket.sendall(frame)
        assert bad.hung_up()
        assert good.call(API_VERSIONS, ApiVersionsResponse, 3).error_code == ErrorCode.NONE


@pytest.mark.headrace({"max.connections": 3})
def test_connections_beyond_the_limit_are_closed(broker: BrokerThread) -> None:
    wires = [Wire(broker.bootstrap) for _ in range(3)]
    for wire in wires:
        wire.call(API_VERSIONS, ApiVersionsResponse, 3)
    with Wire(broker.bootstrap) as extra:
        assert extra.hung_up()
    wires.pop().socket.close()
    for wire in wires:
        wire.call(API_VERSIONS, ApiVersionsResponse, 3)
        wire.socket.close()


@pytest.mark.headrace(
    {"max.connections.per.ip": 1, "max.connections.per.ip.overrides": "127.0.0.1:2"}
)
def test_an_address_may_have_a_limit_of_its_own(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as one, Wire(broker.bootstrap) as two:
        one.call(API_VERSIONS, ApiVersionsResponse, 3)
        two.call(API_VERSIONS, ApiVersionsResponse, 3)
        with Wire(broker.bootstrap) as three:
            assert three.hung_up()


@pytest.mark.headrace({"connections.max.idle.ms": 1000})
def test_idle_connections_are_closed_and_waiting_ones_are_not(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as idle, Wire(broker.bootstrap) as waiting:
        waiting.create_topic("t")
        waiting.send(fetch_request("t", 0, max_wait_ms=4_000), FETCH_VERSION)
        idle.call(API_VERSIONS, ApiVersionsResponse, 3)
        assert idle.hung_up()
        _, response = waiting.receive(FetchResponse, FETCH_VERSION)
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.headrace(
    {"queued.max.request.bytes": 1_000_000, "socket.request.max.bytes": 1_000_000}
)
def test_half_sent_frames_do_not_keep_others_from_being_served(broker: BrokerThread) -> None:
    with (
        Wire(broker.bootstrap) as good,
        Wire(broker.bootstrap) as half,
        Wire(broker.bootstrap) as other,
    ):
        good.create_topic("t")
        frame = half.frame(produce_request("t", batch_of(bytes(900_000))), PRODUCE_VERSION)
        half.socket.sendall(frame[:100_000])
        other.socket.sendall(frame[:100_000])
        for _ in range(3):
            assert good.produce("t", batch_of(bytes(1_000))).error_code == ErrorCode.NONE
        half.socket.sendall(frame[100_000:])
        _, response = half.receive(ProduceResponse, PRODUCE_VERSION)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        other.socket.sendall(frame[100_000:])
        assert other.receive(ProduceResponse, PRODUCE_VERSION)[1].responses


def test_large_frames_are_for_produces_only(wire: Wire) -> None:
    wire.socket.sendall(struct.pack(">ihhih", 50_000_000, 3, 12, 1, -1))
    assert wire.hung_up()


def test_many_pipelined_requests_leave_others_their_turn(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as busy, Wire(broker.bootstrap) as other:
        busy.socket.sendall(busy.frame(API_VERSIONS, 3) * 2_000)
        assert other.call(API_VERSIONS, ApiVersionsResponse, 3).api_keys
        for _ in range(2_000):
            busy.receive_frame()


@pytest.mark.headrace({"queued.max.requests": 1})
def test_a_full_queue_slows_producers_down_and_loses_nothing(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as one, Wire(broker.bootstrap) as two:
        one.create_topic("t")
        for wire in (one, two):
            frames = b"".join(
                wire.frame(produce_request("t", batch_of(b"%d" % n)), PRODUCE_VERSION)
                for n in range(100)
            )
            wire.socket.sendall(frames)
        offsets = []
        for wire in (one, two):
            for _ in range(100):
                _, response = wire.receive(ProduceResponse, PRODUCE_VERSION)
                offsets.append(response.responses[0].partition_responses[0].base_offset)
        assert sorted(offsets) == list(range(200))


def waiting_is(node: Node, count: int) -> bool:
    return node.produce_purgatory.size == count


@pytest.mark.parametrize(("limit", "read"), [(1, 1), (2, 2), (500, 3)])
def test_no_more_writes_are_read_once_queued_max_requests_wait_for_a_sync(
    limit: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = threading.Event()
    run = Flush.run

    def held(flush: Flush) -> None:
        may_sync.wait(WAIT_SECONDS)
        run(flush)

    settings = {"queued.max.requests": limit}
    with BrokerThread(settings) as broker, Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        node = broker.broker.node
        monkeypatch.setattr(Flush, "run", held)
        for sent in range(1, 4):
            wire.send(produce_request("t", batch_of(b"x")), PRODUCE_VERSION)
            parked = min(sent, read)
            wait_until(partial(waiting_is, node, parked))
        with Wire(broker.bootstrap) as other:
            # By now the last write would have been read, too.
            other.call(API_VERSIONS, ApiVersionsResponse, 3)
        assert node.produce_purgatory.size == read
        may_sync.set()
        offsets = [
            wire.receive(ProduceResponse, PRODUCE_VERSION)[1]
            .responses[0]
            .partition_responses[0]
            .base_offset
            for _ in range(3)
        ]
        assert offsets == [0, 1, 2]


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as good:
        good.create_topic("t")
        for cut in (2, 6, 30, 100_000):
            with Wire(broker.bootstrap) as bad:
                frame = bad.frame(produce_request("t", batch_of(bytes(200_000))), PRODUCE_VERSION)
                bad.socket.sendall(frame[:cut])
        with Wire(broker.bootstrap) as gone:
            gone.send(fetch_request("t", 0, max_wait_ms=60_000), FETCH_VERSION)
        assert good.produce("t", batch_of(b"still here")).base_offset == 0
        assert good.call(MetadataRequest(topics=None), MetadataResponse, 12).topics


def test_a_broker_that_stops_does_not_wait_for_those_who_wait_for_it(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as reader, Wire(broker.bootstrap) as idle:
        idle.create_topic("t")
        reader.send(fetch_request("t", 0, max_wait_ms=60_000), FETCH_VERSION)
        reader.send(fetch_request("t", 0, max_wait_ms=60_000), FETCH_VERSION)
        idle.call(API_VERSIONS, ApiVersionsResponse, 3)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < DRAIN_SECONDS
        assert len(records_of(reader.receive(FetchResponse, FETCH_VERSION)[1])) == 0
        assert reader.hung_up()
        assert idle.hung_up()


def test_answers_under_way_leave_before_the_broker_stops(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        wire.socket.sendall(
            b"".join(
                wire.frame(produce_request("t", batch_of(b"%d" % n)), PRODUCE_VERSION)
                for n in range(20)
            )
        )
        wire.receive(ProduceResponse, PRODUCE_VERSION)
        broker.stop()
        answered = 1
        try:
            while True:
                wire.receive(ProduceResponse, PRODUCE_VERSION)
                answered += 1
        except (EOFError, ConnectionResetError):
            pass
    broker.start()
    with Wire(broker.bootstrap) as wire:
        high_watermark = wire.fetch("t", 0).responses[0].partitions[0].high_watermark
    assert high_watermark >= answered
