"""Typed payloads: bytes to the type of a handler's annotation, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import HandlerError, UndecodablePayload

Decoder = Callable[[bytes | None], Any]

SHOWN_BYTES = 60


def decoder(kind: Any) -> Decoder:
    """A function from payloads to `kind`: bytes, str, or JSON for msgspec, pydantic, dataclasses.

    A decoder raises UndecodablePayload. A tombstone is None for `kind | None` and for bytes.
    """
    if kind in (bytes, bytes | None, Any, None):
        return _as_it_is
    if kind in (str, str | None):
        return _text(optional=kind is not str)
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return _checked(validate, kind, optional=False)
    msgspec = _msgspec()
    try:
        decode = msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise HandlerError(
            f"payloads cannot be decoded as {kind!r}: {error}",
            "annotate with bytes, str, a msgspec Struct, a dataclass or a pydantic model",
        ) from None
    return _checked(decode, kind, optional=_takes_none(kind))


def encode(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as a tombstone, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    dump = getattr(value, "model_dump_json", None)
    if dump is not None:
        text: str = dump()
        return text.encode()
    try:
        msgspec = _msgspec()
    except HandlerError:
        plain = value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            plain = dataclasses.asdict(value)
        return json.dumps(plain, separators=(",", ":")).encode()
    encoded: bytes = msgspec.json.encode(value)
    return encoded


def is_stream(value: Any) -> bool:
    """Whether a value is a stream: a binary file, or an iterator."""
    if isinstance(value, (bytes, str)):
        return False
    return callable(getattr(value, "read", None)) or isinstance(value, Iterator)


def to_send(value: Any) -> Any:
    """The same for a producer with large messages, which reads streams itself."""
    return encode(value) if isinstance(value, (bytes, str)) or not is_stream(value) else value


def _as_it_is(payload: bytes | None) -> bytes | None:
    return payload


def _text(optional: bool) -> Decoder:
    def decode(payload: bytes | None) -> str | None:
        if payload is None:
            if optional:
                return None
            raise _tombstone(str)
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise UndecodablePayload(f"the payload is not UTF-8: {error}") from None

    return decode


def _checked(decode: Callable[[bytes], Any], kind: Any, optional: bool) -> Decoder:
    def checked(payload: bytes | None) -> Any:
        try:
            return decode(payload)  # type: ignore[arg-type]
        except Exception as error:
            if payload is None:
                if optional:
                    return None
                raise _tombstone(kind) from None
            raise UndecodablePayload(
                f"the payload {payload[:SHOWN_BYTES]!r} is not {_name(kind)}: {error}"
            ) from None

    return checked


def _tombstone(kind: Any) -> UndecodablePayload:
    return UndecodablePayload(
        f"a record without a value is not {_name(kind)}",
        f"annotate the handler with {_name(kind)} | None to get tombstones",
    )


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _takes_none(kind: Any) -> bool:
    return type(None) in getattr(kind, "__args__", ())


def _msgspec() -> Any:
    try:
        import msgspec
    except ImportError:
        raise HandlerError(
            "typed messages need msgspec", "pip install 'headrace[handlers]'"
        ) from None
    return msgspec
