"""ListConfigResources (key 74), v0-1. v0: client metrics subscriptions only (there are none).
v1: any types, all when no type is given (KIP-1142).
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.config.changes import ResourceType
from headrace.protocol.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headrace.protocol.errors import ErrorCode

KNOWN_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}


@serves(ListConfigResourcesRequest, 0, 1)
def list_config_resources(
    node: Node, ctx: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources with settings; groups, loggers and client metrics have none here."""
    wanted = {ResourceType.CLIENT_METRICS} if ctx.api_version == 0 else set(request.resource_types)
    if not wanted:
        wanted = set(KNOWN_TYPES)
    if not wanted <= KNOWN_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = []
    if ResourceType.TOPIC in wanted:
        resources += [
            ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC)
            for name in node.catalog.topics
        ]
    if ResourceType.BROKER in wanted:
        resources += [
            ConfigResource(resource_name=str(broker.node_id), resource_type=ResourceType.BROKER)
            for broker in node.cluster.brokers()
        ]
    return ListConfigResourcesResponse(config_resources=resources)
