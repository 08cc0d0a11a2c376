"""Jobs and answers as bytes, and how a job reached its worker."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headrace.client.payloads import Decoder, encode
from headrace.dispatch.errors import DispatchError


class Delivery(NamedTuple):
    """How a job reached its worker; passed to a worker that has a parameter of this type.

    The id stays the same when a job runs again: an inbox can remember it.
    """

    id: str
    topic: str
    partition: int
    offset: int
    fence: str


def encode_job(job: Any) -> bytes:
    """A job as bytes; None is not a job, because a record without a value is a signal."""
    payload = encode(job)
    if payload is None:
        raise DispatchError("None is not a job", "submit bytes, text or a typed object")
    return payload


def encode_answer(answer: Any) -> tuple[bytes | None, str]:
    """A worker's answer as bytes, and how it is encoded."""
    if answer is None:
        return None, "none"
    kind = "bytes" if isinstance(answer, bytes) else "text" if isinstance(answer, str) else "json"
    return encode(answer), kind


def decode_answer(payload: bytes | None, kind: str, decode_json: Decoder | None) -> Any:
    """The answer again; JSON is decoded as the worker's annotation says, if there is one."""
    if kind == "none" or payload is None:
        return None
    if kind == "bytes":
        return payload
    if kind == "text":
        return payload.decode()
    return json.loads(payload) if decode_json is None else decode_json(payload)
