"""Fetch: limits, waiting, isolation from what is not durable, and how bytes leave the file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from tests.broker.wire import FETCH_VERSION, Wire, batch_of, fetch_request, records_of
from tests.waiting import wait_until

from headrace.broker.apis.fetch import FetchWaiting
from headrace.protocol.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.api.fetch import FetchResponse
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.batch import build_batch, iter_headers, read_header
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record
from headrace.storage import Origin
from headrace.storage.os_files import OsFile
from headrace.testing import BrokerThread


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        yield wire


def fetched(wire: Wire, offset: int, **options: int) -> memoryview:
    return records_of(wire.fetch("t", offset, **options))


def test_an_offset_inside_a_batch_returns_the_whole_batch(wire: Wire) -> None:
    wire.produce("t", batch_of(b"a", b"b", b"c"))
    assert read_header(fetched(wire, 2), 0).base_offset == 0


def test_limits_cut_between_batches_but_one_batch_always_goes_out(wire: Wire) -> None:
    for n in range(10):
        wire.produce("t", batch_of(bytes([n]) * 1000))
    size = len(fetched(wire, 9))
    assert len(fetched(wire, 0, partition_max_bytes=3 * size + 10)) <= 3 * size + 10
    whole = fetched(wire, 0, partition_max_bytes=1)
    assert read_header(whole, 0).size == size
    assert len(list(iter_headers(fetched(wire, 0)))) == 10


def test_a_fetch_at_the_end_waits_for_its_time_and_returns_nothing(wire: Wire) -> None:
    wire.produce("t", batch_of(b"v"))
    assert len(fetched(wire, 1, max_wait_ms=50)) == 0


def test_min_bytes_waits_for_enough(broker: BrokerThread, wire: Wire) -> None:
    with Wire(broker.bootstrap) as writer:
        request = fetch_request("t", 0, max_wait_ms=60_000, min_bytes=5_000)
        wire.send(request, FETCH_VERSION)
        for _ in range(6):
            writer.produce("t", batch_of(bytes(1000)))
        _, response = wire.receive(FetchResponse, FETCH_VERSION)
        assert len(response.responses[0].partitions[0].records or b"") >= 5_000


@pytest.mark.parametrize("version", [4, FETCH_VERSION])
def test_a_waiting_fetch_that_fails_is_answered_with_an_error(
    broker: BrokerThread, wire: Wire, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def fail(self: FetchWaiting) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(FetchWaiting, "try_complete", fail)
    with Wire(broker.bootstrap) as writer:
        wire.send(fetch_request("t", 0, max_wait_ms=60_000), version)
        wait_until(lambda: broker.broker.node.fetch_purgatory.size == 1)
        writer.produce("t", batch_of(b"v"))
        _, response = wire.receive(FetchResponse, version)
    errors = [response.error_code] + [
        data.error_code for topic in response.responses for data in topic.partitions
    ]
    assert ErrorCode.UNKNOWN_SERVER_ERROR in errors


def test_offsets_outside_the_log_are_refused(wire: Wire) -> None:
    wire.produce("t", batch_of(b"v"))
    for offset in (-1, 2, 10**12):
        data = wire.fetch("t", offset, max_wait_ms=60_000).responses[0].partitions[0]
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_of_a_deleted_topic_is_told_at_once(broker: BrokerThread, wire: Wire) -> None:
    with Wire(broker.bootstrap) as admin:
        wire.send(fetch_request("t", 0, max_wait_ms=60_000), FETCH_VERSION)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        admin.call(request, DeleteTopicsResponse, 6)
        _, response = wire.receive(FetchResponse, FETCH_VERSION)
        error = response.responses[0].partitions[0].error_code
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("sendfile", ["true", "false"])
def test_large_answers_are_the_same_by_copy_and_by_sendfile(sendfile: str) -> None:
    with (
        BrokerThread({"headrace.sendfile": sendfile}) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        wire.create_topic("t")
        values = [os.urandom(900_000) for _ in range(8)]
        for value in values:
            wire.produce("t", batch_of(value))
        data = bytes(fetched(wire, 0))
        assert all(value in data for value in values)


@pytest.mark.parametrize("sendfile", ["true", "false"])
def test_cold_data_are_read_by_a_thread(sendfile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        BrokerThread({"headrace.sendfile": sendfile}) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        wire.create_topic("t")
        values = [os.urandom(300_000) for _ in range(4)]
        for value in values:
            wire.produce("t", batch_of(value))
        monkeypatch.setattr(OsFile, "pread_into", lambda *args: 0)
        data = bytes(fetched(wire, 0))
        assert all(value in data for value in values)
        assert broker.call(lambda: broker.broker.node.metrics.cold_reads.value) > 0


def test_a_client_that_reads_slowly_costs_little_memory(broker: BrokerThread, wire: Wire) -> None:
    for _ in range(16):
        wire.produce("t", batch_of(bytes(1_000_000)))
    slow = []
    for _ in range(20):
        client = Wire(broker.bootstrap)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(fetch_request("t", 0), FETCH_VERSION)
        client.socket.recv(1)
        slow.append(client)

    def held_bytes() -> int:
        server = broker.broker.server
        return sum(
            c._transport.get_write_buffer_size() for c in server._connections if c._transport
        )

    # 20 answers of 16 MB are under way; what is held for them is a chunk each.
    assert broker.call(held_bytes) <= 20 * 512 * 1024
    assert len(fetched(wire, 15)) > 1_000_000
    first = slow[0]
    assert b"".join([first.socket.recv(1)]) is not None
    for client in slow:
        client.socket.close()


def list_offset(wire: Wire, timestamp: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    found = wire.call(request, ListOffsetsResponse, 7).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp


def test_offsets_are_found_by_end_and_by_time(wire: Wire) -> None:
    for n in range(5):
        wire.produce("t", build_batch([Record(0, 1_000 + n * 10, b"k", b"v", ())]))
    assert list_offset(wire, -1) == (5, -1)
    assert list_offset(wire, -2) == (0, -1)
    assert list_offset(wire, -3) == (4, 1_040)
    assert list_offset(wire, 1_015) == (2, 1_020)
    assert list_offset(wire, 9_999) == (-1, -1)


def test_a_reader_far_behind_is_told_only_the_aborted_transactions_of_its_piece(
    broker: BrokerThread, wire: Wire
) -> None:
    records = broker.broker.node.logs.get("t", 0)
    assert records is not None

    def abort_many() -> None:
        for number in range(2000):
            data = build_batch(
                [Record(0, 0, b"k", b"v" * 50, ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
                transactional=True,
            )
            records.append(memoryview(data), leader_epoch=0, now_ms=0)
            marker = EndTransactionMarker(ControlType.ABORT, 0)
            ending = build_marker(marker, producer_id=7, producer_epoch=0, timestamp=0)
            records.append(memoryview(ending), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
        records.high_watermark = records.end_offset

    broker.call(abort_many)
    for offset in (0, 1000, 3999):
        request = fetch_request("t", offset, partition_max_bytes=2000)
        request.isolation_level = 1
        response = wire.call(request, FetchResponse, FETCH_VERSION)
        last = [header for _, header in iter_headers(records_of(response))][-1]
        aborted = response.responses[0].partitions[0].aborted_transactions
        assert aborted is not None
        told = {row.first_offset for row in aborted}
        assert told >= set(range(offset // 2 * 2, last.last_offset, 2))
        assert len(told) < 60
