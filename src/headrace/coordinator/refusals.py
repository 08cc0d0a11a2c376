"""Turning an answer into a refusal, when what it says could not be made durable."""

from __future__ import annotations

from headrace.coordinator.rebalances import refused_join
from headrace.protocol.api.delete_groups import DeletableGroupResult
from headrace.protocol.api.join_group import JoinGroupResponse
from headrace.protocol.api.leave_group import LeaveGroupResponse
from headrace.protocol.api.offset_commit import OffsetCommitResponse
from headrace.protocol.api.offset_delete import OffsetDeleteResponse
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.api.txn_offset_commit import TxnOffsetCommitResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

# What clients of a coordinator understand, for what can go wrong with its log.
FOR_CLIENTS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def refused(response: Message, log_error: ErrorCode) -> Message:
    """The refusal to send in the place of `response`, after the log failed with `log_error`."""
    error = FOR_CLIENTS.get(log_error, ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(response, JoinGroupResponse):
        return refused_join(error, response.member_id)
    if isinstance(response, SyncGroupResponse):
        return SyncGroupResponse(error_code=error)
    if isinstance(response, LeaveGroupResponse):
        return LeaveGroupResponse(error_code=error)
    if isinstance(response, OffsetDeleteResponse):
        return OffsetDeleteResponse(error_code=error)
    if isinstance(response, DeletableGroupResult):
        return DeletableGroupResult(group_id=response.group_id, error_code=error)
    if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
        if log_error in TOO_LARGE:
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or error
        return response
    raise TypeError(f"{type(response).__name__} never waits for the log")
