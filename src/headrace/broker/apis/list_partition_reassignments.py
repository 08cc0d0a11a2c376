"""ListPartitionReassignments (key 46), v0 (KIP-455)."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@serves(ListPartitionReassignmentsRequest, 0, 0)
def list_partition_reassignments(
    node: Node, ctx: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """No partition ever moves to another broker: there is only this one."""
    return ListPartitionReassignmentsResponse(error_message=None)
