"""The one place that turns an error into the fields of a response.

`failed_response` builds a response from the request alone: Kafka's responses mirror their requests,
so arrays of the response are filled from the request's array at the same depth, and fields of the
same meaning are copied. `refused` replaces a response that was ready when its records could not be
stored.
"""

from __future__ import annotations

from typing import Any, TypeVar

from headrace.protocol.api.delete_groups import DeletableGroupResult
from headrace.protocol.api.join_group import JoinGroupResponse
from headrace.protocol.api.leave_group import LeaveGroupResponse
from headrace.protocol.api.offset_commit import OffsetCommitResponse
from headrace.protocol.api.offset_delete import OffsetDeleteResponse
from headrace.protocol.api.produce import PartitionProduceResponse
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.api.txn_offset_commit import TxnOffsetCommitResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Field, Message, MessageType

ResponseT = TypeVar("ResponseT", bound=Message)

# Names for the same field in requests and responses.
SAME = {
    "partition_index": ("partition_index", "partition", "index"),
    "partition": ("partition", "partition_index", "index"),
    "index": ("index", "partition_index", "partition"),
    "topic": ("topic", "name"),
    "name": ("name", "topic"),
}
# What a coordinator tells its clients when its log fails with an error.
COORDINATOR_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def failed_response(
    request: Message, response: type[ResponseT], version: int | None, error: ErrorCode
) -> ResponseT:
    """The response to `request` with `error` in every field for it, in this version or in any."""
    made: ResponseT = _mirror(request, response, version, error)
    return made


def coordinator_error(log_error: ErrorCode) -> ErrorCode:
    """What a coordinator's client is told when its log fails with `log_error`."""
    return COORDINATOR_ERRORS.get(log_error, ErrorCode.UNKNOWN_SERVER_ERROR)


def refused(response: Message, log_error: ErrorCode) -> Message:
    """The response to send instead of `response` after a coordinator's log failed."""
    error = coordinator_error(log_error)
    match response:
        case JoinGroupResponse():
            return JoinGroupResponse(error_code=error, member_id=response.member_id)
        case DeletableGroupResult():
            return DeletableGroupResult(error_code=error, group_id=response.group_id)
        case SyncGroupResponse() | LeaveGroupResponse() | OffsetDeleteResponse():
            return type(response)(error_code=error)
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            if log_error in TOO_LARGE:
                error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.error_code = partition.error_code or error
            return response
    raise TypeError(f"{type(response).__name__} never waits for the log")


def refuse_batch(
    result: PartitionProduceResponse, error: ErrorCode, message: str | None = None
) -> None:
    """Make the result of one partition of a produce an error."""
    result.error_code = error
    result.error_message = message or error.text
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1


def _mirror(source: Any, target: MessageType, version: int | None, error: ErrorCode) -> Any:
    made = target()
    for field in target.FIELDS:
        if not _is_in(field, version):
            continue
        if field.name == "error_code":
            made.error_code = error
        elif field.name == "error_message":
            made.error_message = error.text
        elif field.is_array and isinstance(field.type, MessageType):
            if field.tag is None and _says_error(field.type, version):
                items = _items(source, version)
                setattr(made, field.name, [_mirror(i, field.type, version, error) for i in items])
        elif not field.is_array and not isinstance(field.type, MessageType):
            _carry(source, made, field)
    return made


def _says_error(target: MessageType, version: int | None) -> bool:
    """Whether this part of a response has an error code at any depth."""
    for field in target.FIELDS:
        if _is_in(field, version):
            if field.name == "error_code":
                return True
            if isinstance(field.type, MessageType) and _says_error(field.type, version):
                return True
    return False


def _items(source: Any, version: int | None) -> list[Any]:
    """The elements of the request's first array of parts, or of plain values."""
    if not isinstance(source, Message):
        return []
    for field in type(source).FIELDS:
        if _is_in(field, version) and field.is_array:
            return list(getattr(source, field.name) or ())
    return []


def _carry(source: Any, made: Message, field: Field) -> None:
    if not isinstance(source, Message):
        # An array of plain values, such as partition indexes or group ids.
        if field.name in SAME or field.name == "group_id":
            setattr(made, field.name, source)
        return
    for name in SAME.get(field.name, (field.name,)):
        value = getattr(source, name, None)
        if value is not None:
            setattr(made, field.name, value)
            return


def _is_in(field: Field, version: int | None) -> bool:
    return version is None or version in field.versions
