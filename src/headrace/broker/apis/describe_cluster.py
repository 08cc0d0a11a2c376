"""DescribeCluster (key 60), v0-2. v1: endpoint type (KIP-919). v2: fenced brokers (KIP-1073)."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.errors import ErrorCode

BROKERS, CONTROLLERS = 1, 2
# All operations on a cluster, one bit each: create, alter, describe,
# cluster action, describe configs, alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@serves(DescribeClusterRequest, 0, 2)
def describe_cluster(
    node: Node, ctx: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """List the brokers of the cluster; none is ever fenced: a single node is up or gone."""
    if request.endpoint_type != BROKERS:
        if request.endpoint_type == CONTROLLERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        else:
            error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=error, error_message=error.text, endpoint_type=request.endpoint_type
        )
    cluster = node.cluster
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.brokers()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
