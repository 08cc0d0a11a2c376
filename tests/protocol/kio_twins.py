"""kio's dataclasses for our messages: an independent implementation to agree with."""

from __future__ import annotations

import dataclasses
import datetime
import io
import typing
import uuid
from typing import Any

from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType
from tests.protocol.messages import API_MESSAGES, Special, versions

from headrace.protocol.headers import RequestHeader, ResponseHeader
from headrace.protocol.logs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.protocol.schema import Field, Message, MessageType

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
YEAR_3000_MS = 32_503_680_000_000

# kio turns some numbers into richer types that hold fewer values than the wire does.
NARROWER: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "datetime_i64": st.integers(0, YEAR_3000_MS),
    "timedelta_i64": st.integers(-YEAR_3000_MS, YEAR_3000_MS),
}

# Fields that got another name after the Kafka that kio was made from.
RENAMED_SINCE = {"generation_id": "generation_id_or_member_epoch"}


def kio_name(cls: type[Message]) -> tuple[str, EntityType]:
    """The name and type under which kio's index holds a message."""
    others = {
        RequestHeader: ("request_header", EntityType.header),
        ResponseHeader: ("response_header", EntityType.header),
        ConsumerProtocolAssignment: ("consumer_protocol_assignment", EntityType.data),
        ConsumerProtocolSubscription: ("consumer_protocol_subscription", EntityType.data),
    }
    if cls in others:
        return others[cls]
    kind = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    return api_key_map[cls.API_KEY], kind


def kio_versions(cls: type[Message]) -> list[int]:
    """Those of our versions that kio knows."""
    known = schema_name_map[kio_name(cls)[0]]
    return [version for version in versions(cls) if version in known]


def twin(cls: type[Message], version: int) -> type[Any]:
    """kio's dataclass for one version of a message."""
    name, kind = kio_name(cls)
    return load_entity_schema(name, version, typing.cast(Any, kind))


_hints: dict[Any, dict[str, Any]] = {}

TWINS: list[type[Message]] = [
    *API_MESSAGES,
    RequestHeader,
    ResponseHeader,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]


def paired_fields(
    cls: MessageType, theirs: type[Any], version: int
) -> list[tuple[Field, dataclasses.Field[Any]]]:
    """Our fields of a version beside kio's, which must have the same names in the same order."""
    ours = [field for field in cls.FIELDS if version in field.versions]
    pairs = list(zip(ours, dataclasses.fields(theirs), strict=True))
    for mine, other in pairs:
        # kio leaves the unit out of a name when it turns the number into a duration or a time.
        names = (other.name, f"{other.name}_ms", RENAMED_SINCE.get(other.name))
        assert mine.name in names, f"{cls.__name__}.{mine.name}"
    return pairs


def nested_twin(theirs: type[Any], field: dataclasses.Field[Any]) -> type[Any] | None:
    """The dataclass inside a field's type, whether plain, optional or in a tuple."""
    if theirs not in _hints:
        _hints[theirs] = typing.get_type_hints(theirs)
    todo = [_hints[theirs][field.name]]
    while todo:
        hint = todo.pop()
        if dataclasses.is_dataclass(hint):
            return typing.cast(type[Any], hint)
        todo.extend(typing.get_args(hint))
    return None


def narrower_fields(cls: type[Message]) -> Special:
    """Strategies for the fields whose values kio restricts, at any depth."""
    found: Special = {}

    def walk(cls: MessageType, theirs: type[Any], version: int) -> None:
        for mine, other in paired_fields(cls, theirs, version):
            kind = other.metadata.get("kafka_type")
            if kind in NARROWER:
                found[cls, mine.name] = NARROWER[kind]
            if isinstance(mine.type, MessageType):
                inner = nested_twin(theirs, other)
                assert inner is not None
                walk(mine.type, inner, version)

    for version in kio_versions(cls):
        walk(cls, twin(cls, version), version)
    return found


def to_kio(message: Message, theirs: type[Any], version: int) -> Any:
    """The same message as kio's dataclass."""
    values = {}
    for mine, other in paired_fields(type(message), theirs, version):
        value = getattr(message, mine.name)
        if value is None and mine.tag is not None and not mine.nullable:
            continue  # an absent tagged message: kio has its default there
        values[other.name] = _to_kio_value(value, theirs, other, version)
    return theirs(**values)


def _to_kio_value(
    value: Any, theirs: type[Any], field: dataclasses.Field[Any], version: int
) -> Any:
    if isinstance(value, list):
        return tuple(_to_kio_value(element, theirs, field, version) for element in value)
    if isinstance(value, Message):
        inner = nested_twin(theirs, field)
        assert inner is not None
        return to_kio(value, inner, version)
    if value is None:
        return None
    match field.metadata.get("kafka_type"):
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return EPOCH + value * MILLISECOND
    return value


def kio_bytes(message: Message, version: int) -> bytes:
    """What kio writes for a message."""
    theirs = twin(type(message), version)
    with io.BytesIO() as out:
        entity_writer(theirs)(out, to_kio(message, theirs, version))
        return out.getvalue()
