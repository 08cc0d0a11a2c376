"""DescribeGroups (key 15), v0-6. v1: throttle time. v3: authorized operations. v4: instance ids.
v5: flexible. v6: an error for groups that do not exist (KIP-1043).
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.coordinator.describe import described, not_described
from headrace.protocol.api.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.errors import KafkaError

# READ, DELETE and DESCRIBE as bits of Kafka's operation codes: there is no authorization yet.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


@serves(DescribeGroupsRequest, 0, 6)
def describe_groups(
    node: Node, ctx: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe groups with their members."""
    groups = [_describe(node, ctx, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = ALL_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(node: Node, ctx: Context, group_id: str) -> DescribedGroup:
    try:
        shard = node.groups.shard_of(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    group = shard.coordinator.groups.get(group_id)
    return not_described(group_id, ctx.api_version) if group is None else described(group)
