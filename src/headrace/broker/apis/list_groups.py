"""ListGroups (key 16), v0-5. v1: throttle time. v3: flexible. v4: states (KIP-518). v5: types."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.coordinator.describe import listed
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.errors import KafkaError


@serves(ListGroupsRequest, 0, 5)
def list_groups(node: Node, ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that this broker coordinates."""
    try:
        return ListGroupsResponse(
            groups=[
                group
                for shard in node.groups.shards()
                for group in listed(
                    shard.coordinator.groups.values(), request.states_filter, request.types_filter
                )
            ]
        )
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
