"""IncrementalAlterConfigs (key 44), v0-1. v1: flexible.

Changes single settings (KIP-339): SET, DELETE (back to the default), and for lists APPEND and
SUBTRACT. All changes of a resource happen together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.apis.alter_configs import alter_each
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.broker.topics import Alteration
from headrace.config.changes import Change, Operation, apply_changes
from headrace.protocol.api.alter_configs import AlterConfigsResourceResponse
from headrace.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(IncrementalAlterConfigsRequest, 0, 1)
async def incremental_alter_configs(
    node: Node, ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change single settings of topics and brokers, each resource independently."""
    outcomes = await alter_each(node, request, _alteration)
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(**outcome._asdict()) for outcome in outcomes]
    )


def _alteration(configs: Iterable[AlterableConfig]) -> Alteration:
    changes: list[Change] = []
    for config in configs:
        try:
            operation = Operation(config.config_operation)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{config.name}: unknown operation {config.config_operation}",
            ) from None
        if config.value is None and operation is not Operation.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}"
            )
        changes.append(Change(config.name, operation, config.value))
    return lambda own, effective: apply_changes(own, effective, changes)
