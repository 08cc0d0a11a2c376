"""What coordinators write to their internal topics, in Kafka's own formats.

A key opens with the number of its record type, a value with the version that it is written in.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TypeVar

from headrace.protocol.codec import decoder, encode
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.schema import Message

M = TypeVar("M", bound=Message)

_prefix = Struct(">h")


def write_key(key: Message) -> bytes:
    """Encode a key after the number of its record type."""
    return _prefix.pack(key.API_KEY) + encode(key, 0)


def write_versioned(message: Message, version: int) -> bytes:
    """Encode a value after its version."""
    return _prefix.pack(version) + encode(message, version)


def read_prefix(data: Buffer) -> int:
    """Read what a key or value opens with: its record type or version."""
    try:
        number: int = _prefix.unpack_from(data)[0]
    except StructError as error:
        raise ProtocolError("a coordinator record is too short for its version") from error
    return number


def read_key(cls: type[M], data: Buffer) -> M:
    """Decode a key whose record type was looked at already."""
    message, _ = decoder(cls, 0)(data, _prefix.size, len(data))
    return message


def read_versioned(cls: type[M], data: Buffer) -> M:
    """Decode a value; a version newer than known is read as the newest known one.

    Newer versions of these formats only ever add at the end or in tagged fields, and bytes that
    are left over are ignored for the same reason.
    """
    version = read_prefix(data)
    if version < cls.VERSIONS[0]:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    message, _ = decoder(cls, min(version, cls.VERSIONS[1]))(data, _prefix.size, len(data))
    return message
