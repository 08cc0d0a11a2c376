"""ElectLeaders (key 43), v0-2. v1: unclean elections, an error for the whole response (KIP-460).
v2: flexible.

Each partition has one replica, which leads whenever it is online: there is nothing to elect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.protocol.errors import ErrorCode

PREFERRED, UNCLEAN = 0, 1
NO_CANDIDATE = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


@serves(ElectLeadersRequest, 0, 2)
def elect_leaders(node: Node, ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Say for each partition why it needs no election, or can have none.

    A request for all partitions gets only those without a leader.
    """
    unknown = request.election_type not in NO_CANDIDATE
    response = ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST if unknown else ErrorCode.NONE
    )
    for topic, indexes in _wanted(node, request):
        errors = {index: _outcome(node, topic, index, request.election_type) for index in indexes}
        response.replica_election_results.append(
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error, error_message=error.text)
                    for index, error in errors.items()
                    if request.topic_partitions is not None
                    or error != ErrorCode.ELECTION_NOT_NEEDED
                ],
            )
        )
    return response


def _wanted(node: Node, request: ElectLeadersRequest) -> Iterator[tuple[str, Sequence[int]]]:
    if request.topic_partitions is None:
        for known in node.catalog.topics.values():
            yield known.name, range(known.partitions)
    else:
        for topic in request.topic_partitions:
            yield topic.topic, topic.partitions


def _outcome(node: Node, topic: str, index: int, election_type: int) -> ErrorCode:
    if election_type not in NO_CANDIDATE:
        return ErrorCode.INVALID_REQUEST
    known = node.catalog.get(topic)
    if known is None or not 0 <= index < known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = node.partitions.get(topic, index)
    if partition is None or partition.error:
        return NO_CANDIDATE[election_type]
    return ErrorCode.ELECTION_NOT_NEEDED
