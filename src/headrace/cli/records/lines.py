"""Lines of standard input become records: plain, with a key before a separator, or JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.cli.common.errors import CliError


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """How a line is read, and what every record gets besides."""

    key: str | None = None
    key_separator: str | None = None
    headers: tuple[str, ...] = ()
    partition: int = -1
    empty_is_null: bool = False
    as_json: bool = False


def read_records(lines: Iterable[bytes], options: LineOptions) -> Iterator[dict[str, Any]]:
    """Arguments of a produce call for each line; CliError at the first that cannot be read."""
    fixed = _fixed_fields(options)
    separator = options.key_separator.encode() if options.key_separator else None
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix(b"\n")
        if options.as_json:
            if line.strip():
                yield {**fixed, **_from_json(line, number)}
            continue
        record = {**fixed, "value": line}
        if separator is not None:
            key, found, value = line.partition(separator)
            if found:
                record |= {"key": key, "value": value}
        if options.empty_is_null:
            record = {name: None if field == b"" else field for name, field in record.items()}
        yield record


def _fixed_fields(options: LineOptions) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    if options.partition >= 0:
        fixed["partition"] = options.partition
    if options.key is not None:
        fixed["key"] = options.key.encode()
    if options.headers:
        fixed["headers"] = [_header(text) for text in options.headers]
    return fixed


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise CliError(f"--header {text!r} is not NAME=VALUE", "as in --header source=shop", 2)
    return name, value.encode() if equals else None


def _from_json(line: bytes, number: int) -> dict[str, Any]:
    """A record from a line as `headrace consume -J` prints it; its offset and topic are ignored."""
    try:
        fields = json.loads(line)
        record: dict[str, Any] = {
            "key": _text_field(fields, "key"),
            "value": _text_field(fields, "payload"),
        }
        flat = fields.get("headers") or []
        if flat:
            record["headers"] = [
                (name, None if value is None else value.encode())
                for name, value in zip(flat[::2], flat[1::2], strict=True)
            ]
        if fields.get("ts", -1) > 0:
            record["timestamp"] = fields["ts"]
        return record
    except (ValueError, AttributeError, TypeError) as error:
        raise CliError(
            f"line {number} is not a JSON record: {error}",
            'write lines such as {"key": "k", "payload": "v", "headers": ["name", "value"]}',
        ) from None


def _text_field(fields: dict[str, Any], name: str) -> bytes | None:
    coded = fields.get(f"{name}_base64")
    if coded is not None:
        return base64.b64decode(coded, validate=True)
    text = fields.get(name)
    if text is None or isinstance(text, str):
        return None if text is None else text.encode()
    # A structure as the payload is what people write by hand; send it as the JSON it is.
    return json.dumps(text, ensure_ascii=False, separators=(",", ":")).encode()
