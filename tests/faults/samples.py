"""A small valid request for every API and version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.faults.disks import batch_of

from headrace.protocol.api import REQUESTS
from headrace.protocol.schema import Field, Message, MessageType

# A name that no topic, group or setting has, so that whatever is asked about it does no harm.
NAME = "sample"


def sample(cls: MessageType, version: int) -> Message:
    """A message with one element in each list and something in each field."""
    present = [field for field in cls.FIELDS if version in field.versions]
    values = {field.name: _value(field, version) for field in present}
    message: Message = cls(**values)
    return message


def samples(key: int, first: int, last: int) -> Iterator[tuple[int, Message]]:
    """(version, request) for each version of an API."""
    request = REQUESTS[key]
    for version in range(max(first, request.VERSIONS[0]), min(last, request.VERSIONS[1]) + 1):
        yield version, sample(request, version)


def _value(field: Field, version: int) -> Any:
    kind = field.type
    if isinstance(kind, MessageType):
        one: Any = sample(kind, version)
    else:
        one = {
            "bool": False,
            "float64": 1.0,
            "uuid": b"0123456789abcdef",
            "string": NAME,
            "bytes": b"bytes",
            "records": batch_of(["sample"]),
        }.get(kind.name, 1)
    return [one] if field.is_array else one
