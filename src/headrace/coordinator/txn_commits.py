"""Offsets committed in a transaction: TxnOffsetCommit, pending until the transaction's marker.

The transaction's coordinator has checked before that the transaction may write.
"""

from __future__ import annotations

from headrace.coordinator.effects import Call, ProducerEpoch, Result
from headrace.coordinator.group import Group
from headrace.coordinator.records import Commit, OffsetChange
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.protocol.error_responses import failed_response
from headrace.protocol.errors import ErrorCode


def commit_in_transaction(
    groups: dict[str, Group], settings: GroupSettings, request: TxnOffsetCommitRequest, call: Call
) -> Result:
    """Store offsets that count once the transaction commits; the response names refused ones."""
    out = Result(producer=ProducerEpoch(request.producer_id, request.producer_epoch))
    group = groups.get(request.group_id)
    error = check_txn_commit(group, request)
    if error:
        return out.reply(call.token, refused_txn_commit(request, error))
    if group is not None and request.member_id in group.members:
        # A commit extends the session, as a heartbeat does.
        group.members[request.member_id].beat(call.now.monotonic_ms)
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            code = ErrorCode.NONE
            if len(metadata) > settings.offset_metadata_bytes_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                commit = Commit(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    call.now.wall_ms,
                )
                out.records.append(
                    OffsetChange(request.group_id, topic.name, partition.partition_index, commit)
                )
            partitions.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return out.reply(call.token, TxnOffsetCommitResponse(topics=topics))


def check_txn_commit(group: Group | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Whether a group accepts this commit.

    Before v3 the request has no member and generation (KIP-447), so they are not checked, whether
    the group is empty or not. A rebalance does not refuse it either: the transaction itself fences
    a producer that has lost its partitions.
    """
    generation = request.generation_id_or_member_epoch
    named = bool(request.member_id) or request.group_instance_id is not None
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and (group.state is State.EMPTY or not named):
        return ErrorCode.NONE
    error = group.check(request.member_id, request.group_instance_id)
    if error:
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def refused_txn_commit(
    request: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """The response to a commit of which nothing was stored."""
    return failed_response(request, TxnOffsetCommitResponse, None, error)
