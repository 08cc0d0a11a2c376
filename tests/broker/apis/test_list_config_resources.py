"""ListConfigResources: what has settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.config.changes import ResourceType
from headrace.protocol.api.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [("a", TOPIC), ("b", TOPIC), ("1", BROKER)]),
        ([TOPIC], [("a", TOPIC), ("b", TOPIC)]),
        ([BROKER, ResourceType.GROUP], [("1", BROKER)]),
        ([ResourceType.CLIENT_METRICS], []),
    ],
)
def test_resources_are_listed_by_type(
    tmp_path: Path, types: list[int], expected: list[tuple[str, int]]
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        await asker.create("b")
        request = ListConfigResourcesRequest(resource_types=types)
        answer = await asker.ask(request, ListConfigResourcesResponse, 1)
        assert answer.error_code == 0
        listed = [(each.resource_name, each.resource_type) for each in answer.config_resources]
        assert listed == expected

    with_broker(tmp_path, scenario)


def test_version_0_lists_client_metrics_which_are_none(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        answer = await asker.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
        assert (answer.error_code, answer.config_resources) == (0, [])

    with_broker(tmp_path, scenario)


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        request = ListConfigResourcesRequest(resource_types=[77])
        answer = await asker.ask(request, ListConfigResourcesResponse, 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    with_broker(tmp_path, scenario)
