"""AlterConfigs: the given settings replace all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.config.changes import ResourceType
from headrace.protocol.api.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from headrace.protocol.errors import ErrorCode


def resource(kind: int, name: str, config: dict[str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, value=value) for key, value in config.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def topic(name: str, config: dict[str, str | None]) -> AlterConfigsResource:
    return resource(ResourceType.TOPIC, name, config)


async def codes(
    asker: Asker, *resources: AlterConfigsResource, validate_only: bool = False, version: int = 2
) -> list[int]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answer = await asker.ask(request, AlterConfigsResponse, version)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [each.error_code for each in answer.responses]


@pytest.mark.parametrize("version", range(3))
def test_what_is_not_given_goes_back_to_its_default(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", retention_ms="5", segment_bytes="1000")
        assert await codes(asker, topic("t", {"retention.ms": "7"}), version=version) == [0]
        assert asker.node.catalog.topics["t"].config == {"retention.ms": "7"}
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.config.retention_ms == 7
        assert partition.log.config.segment_bytes == 1 << 30
        assert await codes(asker, topic("t", {}), version=version) == [0]
        assert asker.node.catalog.topics["t"].config == {}

    with_broker(tmp_path, scenario)


def test_each_resource_succeeds_or_fails_for_itself(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("good")
        await asker.create("bad", retention_ms="5")
        assert await codes(
            asker,
            topic("good", {"retention.ms": "1"}),
            topic("bad", {"retention.ms": "soon"}),
            topic("missing", {}),
            topic("null", {"retention.ms": None}),
            resource(ResourceType.BROKER_LOGGER, "1", {}),
        ) == [
            ErrorCode.NONE,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert asker.node.catalog.topics["bad"].config == {"retention.ms": "5"}

    with_broker(tmp_path, scenario)


def test_a_resource_given_twice_is_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        twice = [topic("t", {"retention.ms": "1"}), topic("t", {"retention.ms": "2"})]
        assert await codes(asker, *twice) == [ErrorCode.INVALID_REQUEST] * 2
        assert asker.node.catalog.topics["t"].config == {}

    with_broker(tmp_path, scenario)


def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", retention_ms="5")
        good, bad = topic("t", {"retention.ms": "7"}), topic("t", {"retention.ms": "x"})
        assert await codes(asker, good, validate_only=True) == [0]
        assert await codes(asker, bad, validate_only=True) == [ErrorCode.INVALID_CONFIG]
        assert asker.node.catalog.topics["t"].config == {"retention.ms": "5"}
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.config.retention_ms == 5

    with_broker(tmp_path, scenario)
