"""An error answer to any request: its own topics and partitions, each with the error.

Used when a handler breaks and by the test kit's fault hooks. Kafka's responses mirror their
requests, so the answer is found by walking both: arrays of the response are filled from the
request's array at the same depth, and fields of the same meaning are carried over.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Field, Message, MessageType

# Names under which requests and responses know the same thing.
SAME = {
    "partition_index": ("partition_index", "partition", "index"),
    "partition": ("partition", "partition_index", "index"),
    "index": ("index", "partition_index", "partition"),
    "topic": ("topic", "name"),
    "name": ("name", "topic"),
}


def failed_response(
    request: Message, response: type[Message], version: int, error: ErrorCode
) -> Message:
    """The response to `request` that says `error` wherever this version can say it."""
    answer: Message = _mirror(request, response, version, error)
    return answer


def _mirror(source: Any, target: MessageType, version: int, error: ErrorCode) -> Any:
    made = target()
    for field in target.FIELDS:
        if version not in field.versions:
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


def _says_error(target: MessageType, version: int) -> bool:
    """Whether a part of a response has an error code, at any depth."""
    for field in target.FIELDS:
        if version in field.versions:
            if field.name == "error_code":
                return True
            if isinstance(field.type, MessageType) and _says_error(field.type, version):
                return True
    return False


def _items(source: Any, version: int) -> list[Any]:
    """The elements of the request's first array of parts, or of plain values."""
    if not isinstance(source, Message):
        return []
    for field in type(source).FIELDS:
        if version in field.versions and field.is_array:
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
