"""The list of APIs: what is there, and that requests and responses go together."""

from __future__ import annotations

import pytest

from headrace.protocol.api import REQUESTS, RESPONSES
from headrace.protocol.api_keys import ApiKey


def test_every_api_has_a_request_and_a_response() -> None:
    assert list(REQUESTS) == list(RESPONSES) == [int(key) for key in ApiKey]


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_a_request_and_its_response_have_the_same_versions(key: ApiKey) -> None:
    request, response = REQUESTS[key], RESPONSES[key]
    assert request.API_KEY == response.API_KEY == key
    assert request.VERSIONS == response.VERSIONS
    assert request.FLEXIBLE == response.FLEXIBLE


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_a_module_opens_with_its_key_and_versions(key: ApiKey) -> None:
    request = REQUESTS[key]
    first, last = request.VERSIONS
    versions = f"v{first}-{last}" if first != last else f"v{first}"
    module = __import__(request.__module__, fromlist=["__doc__"])
    name = request.__name__.removesuffix("Request")
    assert (module.__doc__ or "").startswith(f"{name} (key {key}), {versions}: ")


# Clients that do not negotiate, or that negotiate with an older broker in mind, send these.
@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.PRODUCE, 0),
        (ApiKey.FIND_COORDINATOR, 0),
        (ApiKey.HEARTBEAT, 0),
        (ApiKey.LEAVE_GROUP, 0),
        (ApiKey.SYNC_GROUP, 0),
        (ApiKey.JOIN_GROUP, 1),
        (ApiKey.OFFSET_COMMIT, 2),
        (ApiKey.OFFSET_FETCH, 1),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 0),
        (ApiKey.ADD_OFFSETS_TO_TXN, 0),
        (ApiKey.END_TXN, 0),
        (ApiKey.CREATE_TOPICS, 0),
    ],
)
def test_old_versions_that_clients_send_are_declared(key: ApiKey, version: int) -> None:
    first, last = REQUESTS[key].VERSIONS
    assert first <= version <= last
