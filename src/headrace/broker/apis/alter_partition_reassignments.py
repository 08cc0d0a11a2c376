"""AlterPartitionReassignments (key 45), v0-1 (KIP-455). v1: a change of the number of replicas can
be refused (KIP-860).

The only broker holds every partition already, so only the current assignment can be asked for.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.metadata.planning import check_assignment
from headrace.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(AlterPartitionReassignmentsRequest, 0, 1)
def alter_partition_reassignments(
    node: Node, ctx: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Accept the current assignment and refuse every other."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_alter(node, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _alter(node: Node, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_message=None
    )
    try:
        known = node.catalog.get(topic)
        if known is None or not 0 <= wanted.partition_index < known.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        check_assignment(wanted.replicas, node.cluster.node_id)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response
