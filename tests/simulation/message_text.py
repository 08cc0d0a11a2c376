"""Messages in words, short enough to read a trace: names of errors, no defaults, no clutter."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

CODES = {int(code): code for code in ErrorCode}

_DEFAULTS: tuple[object, ...] = (None, 0, -1, "", b"", [], bytes(16), False)
_ID_CHARACTERS = 8


def words(value: object, name: str = "") -> str:
    """A value as a reader of a trace wants it."""
    if isinstance(value, Message):
        kind = type(value).__name__.removesuffix("Request").removesuffix("Response")
        fields = (
            f"{field}={words(content, field)}"
            for field in vars(type(value))["__slots__"]
            if (content := getattr(value, field)) not in _DEFAULTS
        )
        return f"{kind}({', '.join(fields)})"
    if isinstance(value, list):
        return "[" + ", ".join(words(each, name) for each in value) + "]"
    if name == "error_code" and isinstance(value, int):
        return CODES[value].name
    if isinstance(value, str) and len(value) > 36 and value[-37] == "-":
        # An id that ends in a UUID.
        return value[: _ID_CHARACTERS - 36]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex() if len(value) <= 16 else f"{len(value)} bytes"
    return str(value)
