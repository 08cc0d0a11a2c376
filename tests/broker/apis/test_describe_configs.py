"""DescribeConfigs: values, sources, synonyms, types, documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.config import BROKER_ROWS, TOPIC_ROWS, Kind, Source
from headrace.config.changes import Change, Operation, ResourceType, apply_changes
from headrace.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


async def describe(
    asker: Asker, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = (await asker.ask(request, DescribeConfigsResponse, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def synonyms(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_tells_all_of_its_settings_with_sources(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", retention_ms="5")
        result = await describe(asker, TOPIC, "t", version=version)
        configs = {config.name: config for config in result.configs}
        assert set(configs) == {row.name for row in TOPIC_ROWS}
        retention = configs["retention.ms"]
        assert (retention.value, retention.read_only) == ("5", False)
        assert retention.config_source == Source.TOPIC
        assert synonyms(retention) == [
            ("retention.ms", "5", Source.TOPIC),
            ("log.retention.minutes", "9", Source.STATIC_BROKER),
            ("log.retention.hours", "168", Source.DEFAULT),
        ]
        segment = configs["segment.bytes"]
        assert segment.value == str(1 << 30)
        assert segment.config_source == Source.DEFAULT
        assert configs["cleanup.policy"].value == "delete"
        assert configs["min.cleanable.dirty.ratio"].value == "0.5"
        if version >= 3:
            assert retention.config_type == Kind.LONG
            assert retention.documentation == TOPIC_ROWS.row("retention.ms").doc

    with_broker(tmp_path, scenario, {"log.retention.minutes": 9})


def test_a_broker_tells_all_of_its_settings(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        result = await describe(asker, BROKER, "1")
        configs = {config.name: config for config in result.configs}
        assert set(configs) == {row.name for row in BROKER_ROWS}
        partitions = configs["num.partitions"]
        assert (partitions.value, partitions.read_only) == ("6", True)
        assert partitions.config_source == Source.STATIC_BROKER
        assert synonyms(partitions) == [
            ("num.partitions", "6", Source.STATIC_BROKER),
            ("num.partitions", "1", Source.DEFAULT),
        ]
        assert configs["message.max.bytes"].read_only is False
        assert configs["log.retention.ms"].value is None

    with_broker(tmp_path, scenario, {"num.partitions": 6})


def test_only_the_settings_asked_for_are_told(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        result = await describe(asker, TOPIC, "t", ["retention.ms", "unknown"])
        assert [config.name for config in result.configs] == ["retention.ms"]
        everything = await describe(asker, TOPIC, "t", [])
        assert len(everything.configs) == len(TOPIC_ROWS.rows)

    with_broker(tmp_path, scenario)


def test_synonyms_and_documentation_come_only_when_asked_for(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=["num.partitions"]
        )
        request = DescribeConfigsRequest(resources=[resource])
        (result,) = (await asker.ask(request, DescribeConfigsResponse)).results
        (config,) = result.configs
        assert (config.synonyms, config.documentation) == ([], None)

    with_broker(tmp_path, scenario)


def test_what_is_set_for_all_brokers_is_told_under_the_empty_name(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        assert (await describe(asker, BROKER, "")).configs == []
        change = Change("message.max.bytes", Operation.SET, "99")
        await asker.node.topics.alter_broker(
            None,
            lambda own, effective: apply_changes(own, effective, [change]),
            validate_only=False,
        )
        (config,) = (await describe(asker, BROKER, "")).configs
        assert (config.name, config.value) == ("message.max.bytes", "99")
        assert config.config_source == Source.DYNAMIC_DEFAULT_BROKER

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "g", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here_is_refused(
    tmp_path: Path, kind: int, name: str, code: ErrorCode
) -> None:
    async def scenario(asker: Asker) -> None:
        result = await describe(asker, kind, name)
        assert result.error_code == code
        assert result.error_message
        assert result.configs == []

    with_broker(tmp_path, scenario)
