"""Answers from files that are cold, gone or slow to send stay whole, in order, or are cut off."""

from __future__ import annotations

import os
import threading

import pytest

from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.api.fetch import FetchResponse
from headrace.storage import Slice
from headrace.storage.os_files import OsFile
from headrace.testing import BrokerThread

from .wire import FETCH_VERSION, Wire, batch_of, fetch_request, records_of

API_VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1")


def test_nothing_slips_into_an_answer_that_is_being_read_from_disk(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, gate = Slice.read, threading.Event()

    def slow(piece: Slice) -> bytes | bytearray:
        gate.wait(10)
        return read(piece)

    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        value = os.urandom(20_000)
        wire.produce("t", batch_of(value))
        monkeypatch.setattr(OsFile, "pread_into", lambda *args: 0)
        monkeypatch.setattr(Slice, "read", slow)
        # Version 11 ends with the records: nothing is queued behind them.
        first = wire.send(fetch_request("t", 0), 11)
        second = wire.send(API_VERSIONS, 3)
        threading.Timer(0.2, gate.set).start()
        answered, response = wire.receive(FetchResponse, 11)
        assert answered == first
        assert value in bytes(records_of(response))
        assert wire.receive(ApiVersionsResponse, 3)[0] == second


@pytest.mark.parametrize("version", [11, FETCH_VERSION])
def test_a_connection_goes_on_after_a_cold_read(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(bytes(20_000)))
        monkeypatch.setattr(OsFile, "pread_into", lambda *args: 0)
        for _ in range(3):
            assert len(records_of(wire.call(fetch_request("t", 0), FetchResponse, version)))


def test_a_slow_reader_of_a_deleted_topic_never_sees_its_successor(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as admin, Wire(broker.bootstrap) as slow:
        admin.create_topic("t")
        for _ in range(16):
            admin.produce("t", batch_of(b"old" * 300_000))
        slow.send(fetch_request("t", 0), FETCH_VERSION)
        received = bytearray(slow.socket.recv(1000))
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        admin.call(request, DeleteTopicsResponse, 6)
        admin.create_topic("t")
        for _ in range(16):
            admin.produce("t", batch_of(b"new" * 300_000))
        try:
            while piece := slow.socket.recv(1 << 20):
                received += piece
                if len(received) > 14_000_000:
                    break
        except (ConnectionResetError, TimeoutError):
            pass
        assert b"newnewnew" not in received
        assert admin.call(API_VERSIONS, ApiVersionsResponse, 3).api_keys


@pytest.mark.parametrize("version", [11, FETCH_VERSION])
def test_an_answer_without_records_does_not_hold_up_the_next(
    broker: BrokerThread, version: int
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        for _ in range(2):
            response = wire.call(fetch_request("t", 0, max_wait_ms=0), FetchResponse, version)
            assert not records_of(response)
