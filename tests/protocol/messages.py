"""Every message that the protocol declares, and values for them made by hypothesis."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from hypothesis import strategies as st

from headrace.protocol import logs
from headrace.protocol.api import REQUESTS, RESPONSES
from headrace.protocol.headers import RequestHeader, ResponseHeader
from headrace.protocol.schema import Field, Message, MessageType, Primitive

LOG_MODULES = [
    importlib.import_module(f"{logs.__name__}.{module.name}")
    for module in pkgutil.iter_modules(logs.__path__)
]
LOG_MESSAGES: list[type[Message]] = [
    value
    for module in LOG_MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value.VERSIONS != Message.VERSIONS
]
API_MESSAGES: list[type[Message]] = [*REQUESTS.values(), *RESPONSES.values()]
HEADERS: list[type[Message]] = [RequestHeader, ResponseHeader]
MESSAGES = [*API_MESSAGES, *HEADERS, *LOG_MESSAGES]


def versions(cls: MessageType) -> range:
    first, last = cls.VERSIONS
    return range(first, last + 1)


def _integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([low, 0, 1, 127, high]) | st.integers(low, high)


# Lengths around 127 are where compact lengths grow to two bytes.
_TEXT = st.text(max_size=4) | st.sampled_from(["a" * 126, "b" * 127, "é" * 200])
_BYTES = st.binary(max_size=4) | st.sampled_from([b"c" * 126, b"d" * 127, bytes(300)])

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": _integers(16, signed=False),
    "int32": _integers(32),
    "int64": _integers(64),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}

Special = dict[tuple[MessageType, str], st.SearchStrategy[Any]]


def messages(cls: type[Message], special: Special | None = None) -> st.SearchStrategy[Message]:
    """Messages with every field of every version set; `special` narrows single fields."""
    special = special or {}

    @cache
    def struct(cls: MessageType) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({f.name: field(cls, f) for f in cls.FIELDS}).map(
            lambda values: cls(**values)
        )

    def field(cls: MessageType, declared: Field) -> st.SearchStrategy[Any]:
        kind = declared.type
        one = PRIMITIVES[kind.name] if isinstance(kind, Primitive) else struct(kind)
        one = special.get((cls, declared.name), one)
        value = st.lists(one, max_size=2) if declared.is_array else one
        return st.none() | value if declared.nullable else value

    return struct(cls)


def at_version(message: Message, version: int) -> Message:
    """What a message becomes when it is written in a version and read again."""
    cls = type(message)
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions:
            value = field.fresh_default()
        elif value is None and version not in field.nullable and field.tag is None:
            # A None that only other versions allow: the type's zero stands in for it.
            value = [] if field.is_array else zero(field)
        elif isinstance(value, list):
            value = [at_version(v, version) if isinstance(v, Message) else v for v in value]
        elif isinstance(value, Message):
            value = at_version(value, version)
            if field.tag is not None and not field.nullable and value == type(value)():
                value = None
        values[field.name] = value
    return cls(**values)


def zero(field: Field) -> Any:
    if isinstance(field.type, MessageType):
        return field.type()
    return b"" if field.type.name == "records" else field.type.zero


SAMPLES: dict[str, Any] = {
    "bool": True,
    "int8": 3,
    "int16": 300,
    "uint16": 60_000,
    "int32": 70_000,
    "int64": 2**40 + 1,
    "float64": 1.5,
    "uuid": bytes(range(1, 17)),
    "string": "héadrace",
    "bytes": b"\x00\x01\xff",
    "records": bytes(70),
}


def sample(cls: MessageType) -> Any:
    """A message in which no field has its default and every list has two elements."""
    return cls(**{field.name: _sample_value(field) for field in cls.FIELDS})


def _sample_value(field: Field) -> Any:
    kind = field.type
    one = sample(kind) if isinstance(kind, MessageType) else SAMPLES[kind.name]
    return [one, one] if field.is_array else one
