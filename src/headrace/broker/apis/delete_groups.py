"""DeleteGroups (key 42), v0-3. v1: throttle after the response. v2: flexible. v3: error message."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.effects import Reply, Result
from headrace.protocol.api.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headrace.protocol.errors import KafkaError


@serves(DeleteGroupsRequest, 0, 3)
def delete_groups(node: Node, ctx: Context, request: DeleteGroupsRequest) -> Pending:
    """Delete empty groups with their offsets; responds when that is durable."""
    group_ids = list(dict.fromkeys(request.groups_names))
    results: dict[str, DeletableGroupResult] = {}
    pending = Pending()

    def done(part: Pending) -> None:
        result = part.response
        assert isinstance(result, DeletableGroupResult)
        results[result.group_id] = result
        if len(results) == len(group_ids):
            ordered = [results[group_id] for group_id in group_ids]
            pending.resolve(DeleteGroupsResponse(results=ordered))

    for group_id in group_ids:
        _delete(node, group_id).on_resolved(done)
    if not group_ids:
        pending.resolve(DeleteGroupsResponse())
    return pending


def _delete(node: Node, group_id: str) -> Pending:
    part = Pending()
    result = DeletableGroupResult(group_id=group_id)
    try:
        shard = node.groups.shard_of(group_id)
    except KafkaError as error:
        result.error_code = error.code
        part.resolve(result)
        return part
    shard.write_open()
    result.error_code, records = shard.coordinator.delete(group_id)
    shard.carry_out(Result(records=records, replies=[Reply(part, result)]))
    return part
