"""Messages to bytes and back; the codec of a version is generated on first use and cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.protocol.decoding import DecoderSource
from headrace.protocol.encoding import EncoderSource
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.schema import Message, check_version

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}
_splitters: dict[tuple[type[Message], int], Any] = {}


def encode(message: Message, version: int) -> bytes:
    """Encode a message in a version."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def segments(message: Message, version: int) -> list[Any]:
    """Encode a message into parts; its `records` values are parts as they were given."""
    parts: list[Any] = []
    last = splitter(type(message), version)(message, bytearray(), parts)
    if last:
        parts.append(last)
    return parts


def decode(cls: type[M], version: int, data: Buffer, offset: int = 0) -> M:
    """Decode a message that fills `data` from `offset` to its end exactly."""
    end = len(data)
    message, pos = decoder(cls, version)(data, offset, end)
    if pos != end:
        raise ProtocolError(f"{end - pos} bytes follow {cls.__name__} v{version}")
    return message


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int, int], tuple[M, int]]:
    """The function (buffer, position, end) -> (message, position after it)."""
    found: Callable[[Buffer, int, int], tuple[M, int]] | None = _decoders.get((cls, version))
    if found is None:
        check_version(cls, version)
        found = _decoders[cls, version] = DecoderSource(cls, version).compile("decode")
    return found


def encoder(cls: type[M], version: int) -> Callable[[M, bytearray], object]:
    """The function (message, out) that appends the message's bytes to `out`."""
    found: Callable[[M, bytearray], object] | None = _encoders.get((cls, version))
    if found is None:
        check_version(cls, version)
        found = _encoders[cls, version] = EncoderSource(cls, version, split=False).compile("encode")
    return found


def splitter(cls: type[M], version: int) -> Callable[[M, bytearray, list[Any]], bytearray]:
    """The function (message, out, parts) that moves `out` to `parts` before each `records` value,
    the value after it, and returns what follows the last one."""
    found: Callable[[M, bytearray, list[Any]], bytearray] | None = _splitters.get((cls, version))
    if found is None:
        check_version(cls, version)
        found = _splitters[cls, version] = EncoderSource(cls, version, split=True).compile("encode")
    return found
