"""IncrementalAlterConfigs: single settings change, of topics and of brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.config import Source
from headrace.config.changes import Operation, ResourceType
from headrace.protocol.api.alter_configs import AlterConfigsResourceResponse
from headrace.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.storage import LogConfig

SET, DELETE, APPEND, SUBTRACT = Operation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


async def alter(
    asker: Asker,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> AlterConfigsResourceResponse:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = await asker.ask(request, IncrementalAlterConfigsResponse, version)
    (response,) = answer.responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


def log_config(asker: Asker, topic: str) -> LogConfig:
    partition = asker.node.partitions.get(topic, 0)
    assert partition is not None
    return partition.log.config


@pytest.mark.parametrize("version", range(2))
def test_a_set_setting_takes_effect_on_the_log_at_once(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2, segment_bytes="1000")
        response = await alter(asker, TOPIC, "t", ("retention.ms", SET, "7"), version=version)
        assert response.error_code == 0
        assert asker.node.catalog.topics["t"].config == {
            "segment.bytes": "1000",
            "retention.ms": "7",
        }
        assert log_config(asker, "t").retention_ms == 7
        assert log_config(asker, "t").segment_bytes == 1000
        await alter(asker, TOPIC, "t", ("retention.ms", DELETE, None), version=version)
        assert log_config(asker, "t").retention_ms == 7 * 86_400_000

    with_broker(tmp_path, scenario)


def test_lists_are_appended_to_and_subtracted_from(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        await alter(asker, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
        assert asker.node.catalog.topics["t"].config == {"cleanup.policy": "delete,compact"}
        assert log_config(asker, "t").cleanup_policy == {"delete", "compact"}
        await alter(asker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
        assert log_config(asker, "t").cleanup_policy == {"compact"}
        empty = await alter(asker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"))
        assert empty.error_code == ErrorCode.INVALID_CONFIG

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retenton.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
        ([("flush.ms", SET, "9"), ("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_all_beside_it(
    tmp_path: Path, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", retention_ms="5")
        response = await alter(asker, TOPIC, "t", *changes)
        assert response.error_code == code
        assert response.error_message
        assert asker.node.catalog.topics["t"].config == {"retention.ms": "5"}

    with_broker(tmp_path, scenario)


def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        change = ("retention.ms", SET, "7")
        assert (await alter(asker, TOPIC, "t", change, validate_only=True)).error_code == 0
        assert asker.node.catalog.topics["t"].config == {}
        change = ("message.max.bytes", SET, "7")
        assert (await alter(asker, BROKER, "", change, validate_only=True)).error_code == 0
        assert asker.node.settings.is_default("message.max.bytes")

    with_broker(tmp_path, scenario)


def test_a_brokers_setting_is_the_default_of_its_topics_at_once(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("follows")
        await asker.create("own", max_message_bytes="50")
        await alter(asker, BROKER, "", ("message.max.bytes", SET, "200"))
        assert log_config(asker, "follows").max_message_bytes == 200
        assert log_config(asker, "own").max_message_bytes == 50
        await alter(asker, BROKER, "1", ("message.max.bytes", SET, "300"))
        assert log_config(asker, "follows").max_message_bytes == 300
        assert asker.node.settings.source("message.max.bytes") is Source.DYNAMIC_BROKER
        await asker.create("later")
        assert log_config(asker, "later").max_message_bytes == 300
        await alter(asker, BROKER, "1", ("message.max.bytes", DELETE, None))
        assert log_config(asker, "follows").max_message_bytes == 200

    with_broker(tmp_path, scenario)


def test_dynamic_broker_settings_survive_a_restart(tmp_path: Path) -> None:
    async def change(asker: Asker) -> None:
        await asker.create("t")
        await alter(asker, BROKER, "", ("message.max.bytes", SET, "200"))
        await alter(asker, BROKER, "1", ("log.retention.ms", SET, "9"))

    async def check(asker: Asker) -> None:
        assert log_config(asker, "t").max_message_bytes == 200
        assert log_config(asker, "t").retention_ms == 9

    with_broker(tmp_path, change)
    with_broker(tmp_path, check)


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", ("num.partitions", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("1", ("message.max.bytes", SET, "-1"), ErrorCode.INVALID_CONFIG),
        ("1", ("mesage.max.bytes", SET, "1"), ErrorCode.INVALID_CONFIG),
        ("2", ("message.max.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_brokers_setting_that_cannot_change_is_refused(
    tmp_path: Path, name: str, change: tuple[str, int, str], code: ErrorCode
) -> None:
    async def scenario(asker: Asker) -> None:
        response = await alter(asker, BROKER, name, change)
        assert response.error_code == code
        assert asker.node.catalog.broker_configs == {}

    with_broker(tmp_path, scenario)


def test_what_has_no_settings_here_is_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        response = await alter(asker, ResourceType.BROKER_LOGGER, "1", ("x", SET, "DEBUG"))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        response = await alter(asker, TOPIC, "missing", ("retention.ms", SET, "1"))
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_broker(tmp_path, scenario)
