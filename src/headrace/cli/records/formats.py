"""Printing consumed records: kcat's format strings and its JSON envelope."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from headrace.cli.common.errors import CliError

# A consumed message as confluent-kafka gives it.
Message = Any
Formatter = Callable[[Message], bytes]

_TIMESTAMP_TYPES = {0: "unknown", 1: "create", 2: "logappend"}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def _headers_text(message: Message) -> bytes:
    headers = message.headers() or []
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers
    )


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


_TOKENS: dict[str, Formatter] = {
    "s": lambda message: message.value() or b"",
    "v": lambda message: message.value() or b"",
    "S": lambda message: b"%d" % _length(message.value()),
    "R": lambda message: _length(message.value()).to_bytes(4, "big", signed=True),
    "k": lambda message: message.key() or b"",
    "K": lambda message: b"%d" % _length(message.key()),
    "t": lambda message: message.topic().encode(),
    "p": lambda message: b"%d" % message.partition(),
    "o": lambda message: b"%d" % message.offset(),
    "T": lambda message: b"%d" % message.timestamp()[1],
    "h": _headers_text,
}


def compile_format(template: str) -> Formatter:
    r"""Turn a format string into a function; `%` tokens and backslash escapes are kcat's.

    %s or %v value, %S its length (-1 for null), %R the length as 4 bytes, %k key, %K its length,
    %t topic, %p partition, %o offset, %T timestamp in ms, %h headers, %% a percent sign;
    \n \r \t \0 \\ and \xNN.
    """
    parts: list[bytes | Formatter] = []
    index = 0
    while index < len(template):
        char = template[index]
        following = template[index + 1 : index + 2]
        if char == "%":
            parts.append(_token(following, template))
            index += 2
        elif char == "\\":
            escaped, width = _escape(template, index, following)
            parts.append(escaped)
            index += width
        else:
            parts.append(char.encode())
            index += 1
    return _join(parts)


def _token(name: str, template: str) -> bytes | Formatter:
    if name == "%":
        return b"%"
    if name in _TOKENS:
        return _TOKENS[name]
    known = " ".join(f"%{token}" for token in _TOKENS)
    raise CliError(f"format {template!r} has an unknown token %{name}", f"use {known} %%")


def _escape(template: str, index: int, following: str) -> tuple[bytes, int]:
    if following == "x":
        digits = template[index + 2 : index + 4]
        try:
            return bytes([int(digits, 16)]), 4
        except ValueError:
            raise CliError(
                f"format {template!r} has a bad escape \\x{digits}", "write two hex digits: \\x0a"
            ) from None
    if following in _ESCAPES:
        return _ESCAPES[following], 2
    return b"\\", 1


def _join(parts: list[bytes | Formatter]) -> Formatter:
    # Neighbouring literals become one, so that printing a record touches few objects.
    merged: list[bytes | Formatter] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)

    def format_message(message: Message) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in merged)

    return format_message


def format_json(message: Message) -> bytes:
    """One line of JSON with kcat's names; bytes that are no text go to a `_base64` twin."""
    timestamp_type, timestamp_ms = message.timestamp()
    line: dict[str, object] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "tstype": _TIMESTAMP_TYPES[timestamp_type],
        "ts": timestamp_ms,
    }
    headers = message.headers()
    if headers:
        line["headers"] = [
            text
            for name, value in headers
            for text in (name, None if value is None else value.decode(errors="replace"))
        ]
    _put_text(line, "key", message.key())
    _put_text(line, "payload", message.value())
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _put_text(line: dict[str, object], name: str, value: bytes | None) -> None:
    try:
        line[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        line[f"{name}_base64"] = base64.b64encode(value or b"").decode()
