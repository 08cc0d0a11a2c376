"""AlterConfigs (key 33), v0-2. v1: quotas. v2: flexible.

Replaces all of a resource's own settings by the given ones; the others go back to their
defaults. IncrementalAlterConfigs changes single settings and should be preferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.broker.apis.describe_configs import check_broker
from headrace.broker.apis.metadata import unknown_topic_error
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.broker.topics import Alteration
from headrace.config.changes import ResourceType
from headrace.protocol.api.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headrace.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(AlterConfigsRequest, 0, 2)
async def alter_configs(
    node: Node, ctx: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the settings of topics and brokers, each independently."""
    outcomes = await alter_each(node, request, _replacement)
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(**outcome._asdict()) for outcome in outcomes]
    )


def _replacement(configs: Iterable[AlterableConfig]) -> Alteration:
    given: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}"
            )
        given[config.name] = config.value
    return lambda own, effective: given


class Outcome(NamedTuple):
    """The result for one resource; both responses use these names."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


async def alter_each(
    node: Node,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    alteration_of: Callable[[Any], Alteration],
) -> list[Outcome]:
    """Change the settings of every resource of a request, each independently."""
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    outcomes = []
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        try:
            _check_once(times[key], [config.name for config in resource.configs])
            alteration = alteration_of(resource.configs)
            await _alter(node, *key, alteration, validate_only=request.validate_only)
        except KafkaError as error:
            outcomes.append(Outcome(error.code, error.message, *key))
        else:
            outcomes.append(Outcome(ErrorCode.NONE, None, *key))
    return outcomes


def _check_once(times: int, names: list[str]) -> None:
    """Raise KafkaError if a resource, or one of its settings, appears more than once."""
    if times > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Each resource must appear at most once in a request."
        )
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


async def _alter(
    node: Node, resource_type: int, name: str, alter: Alteration, *, validate_only: bool
) -> None:
    """Change the settings of one resource; raises KafkaError if it is refused."""
    if resource_type == ResourceType.TOPIC:
        if name not in node.catalog.topics:
            raise KafkaError(unknown_topic_error(name))
        await node.topics.alter_topic(name, alter, validate_only=validate_only)
    elif resource_type == ResourceType.BROKER:
        broker_id = check_broker(node, name)
        await node.topics.alter_broker(broker_id, alter, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")
