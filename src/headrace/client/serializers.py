"""Serialisers and deserialisers, by short name, by the name of Kafka's class, or as functions."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable
from importlib import import_module
from typing import Any

from confluent_kafka import KafkaError

from headrace.client.errors import UnknownSetting

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]

_JAVA = "org.apache.kafka.common.serialization."


def _packed(form: str) -> tuple[Serializer, Deserializer]:
    packer = struct.Struct(form)

    def unpack(data: bytes) -> Any:
        return packer.unpack(data)[0]

    return packer.pack, unpack


def _write_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _same(value: Any) -> Any:
    return value


# By a short name; integers and floats as Java writes them.
PAIRS: dict[str, tuple[Serializer, Deserializer]] = {
    "bytes": (_same, _same),
    "string": (str.encode, bytes.decode),
    "json": (_write_json, json.loads),
    "short": _packed(">h"),
    "integer": _packed(">i"),
    "long": _packed(">q"),
    "float": _packed(">f"),
    "double": _packed(">d"),
    "uuid": (lambda value: str(value).encode(), lambda data: uuid.UUID(data.decode())),
}
_SHORT = {"bytearray": "bytes", "bytebuffer": "bytes"}


def serializer(given: str | Serializer | None) -> Serializer | None:
    """A serialiser by name, by import path (`module:function`) or as it is; None: bytes and str."""
    if given is None or callable(given):
        return given
    found = _pair(given, "Serializer")
    return found[0] if found else load(given)


def deserializer(given: str | Deserializer | None) -> Deserializer | None:
    """A deserialiser by name, by import path (`module:function`) or as it is; None: bytes."""
    if given is None or callable(given):
        return given
    found = _pair(given, "Deserializer")
    return found[1] if found else load(given)


def load(path: str) -> Any:
    """The object at `module:name`; UnknownSetting if it cannot be imported."""
    module, colon, name = path.partition(":")
    try:
        return getattr(import_module(module), name) if colon else _names(path)
    except (ImportError, AttributeError) as problem:
        raise UnknownSetting(f"{path!r} cannot be imported: {problem}") from None


def _names(path: str) -> Any:
    known = ", ".join(PAIRS)
    raise UnknownSetting(f"{path!r} is unknown; use MODULE:NAME or one of {known}")


def _pair(name: str, suffix: str) -> tuple[Serializer, Deserializer] | None:
    short = name.removeprefix(_JAVA).removesuffix(suffix).lower()
    short = _SHORT.get(short, short)
    return PAIRS.get(short)


class Decoder:
    """Applies deserialisers to records in place; without any it does nothing."""

    def __init__(self, key: str | Deserializer | None, value: str | Deserializer | None) -> None:
        self._key = deserializer(key)
        self._value = deserializer(value)

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def decode(self, record: Any) -> Exception | None:
        """Decode a record in place; returns what a deserialiser raised, if it did.

        The record then keeps its bytes and has an `error()`, for callers that read many at once.
        """
        code = KafkaError._KEY_DESERIALIZATION
        try:
            key, value = record.key(), record.value()
            if self._key is not None and key is not None:
                key = self._key(key)
            code = KafkaError._VALUE_DESERIALIZATION
            if self._value is not None and value is not None:
                value = self._value(value)
        except Exception as problem:
            record.set_error(KafkaError(code, f"{type(problem).__name__}: {problem}"))
            return problem
        record.set_key(key)
        record.set_value(value)
        return None
