"""The table of APIs: complete, within the protocol, and each key once."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace.broker.apis
from headrace.broker import router
from headrace.broker.registry import APIS, Api, serves
from headrace.protocol.api import REQUESTS
from headrace.protocol.api.fetch import FetchRequest
from headrace.protocol.api.heartbeat import HeartbeatRequest
from headrace.protocol.api.offset_commit import OffsetCommitRequest
from headrace.protocol.api.produce import ProduceRequest


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.request.__name__)
def test_an_api_serves_versions_that_its_messages_have(api: Api) -> None:
    first, last = REQUESTS[api.api_key].VERSIONS
    assert first <= api.version_min <= api.version_max <= last
    assert api.advertised_min <= api.version_min


def test_every_file_of_the_folder_registers_its_api() -> None:
    folder = Path(headrace.broker.apis.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {api.function.__module__.rpartition(".")[2] for api in APIS.values()} == files


def test_a_key_is_registered_once() -> None:
    with pytest.raises(ValueError, match="API key 12 is registered twice"):
        serves(HeartbeatRequest, 0, 4)(lambda node, context, request: None)


def test_only_produce_receives_records_and_only_fetch_sends_them() -> None:
    assert [api.request for api in APIS.values() if api.receives_records] == [ProduceRequest]
    assert [api.request for api in APIS.values() if api.sends_records] == [FetchRequest]


def test_produce_and_commit_have_a_fast_path() -> None:
    fast = {api.request for api in APIS.values() if api.fast_path is not None}
    assert fast == {ProduceRequest, OffsetCommitRequest}


def test_the_router_knows_no_api_by_name() -> None:
    source = Path(router.__file__).read_text().lower()
    assert "broker.apis" not in source
    assert "protocol.api." not in source
    assert "_templates" not in source
