"""Jobs and their worker: typed by annotations, in bytes on the way."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, get_type_hints

from headrace.client.payloads import Decoder, decoder, encode
from headrace.dispatch.errors import DispatchError
from headrace.errors import HandlerError


class Delivery(NamedTuple):
    """How a job came to its worker; a worker that has a parameter of this type is told.

    The id stays the same when a job runs again: it is what an inbox remembers.
    """

    id: str
    topic: str
    partition: int
    offset: int
    fence: str


@dataclass(frozen=True, slots=True)
class Worker:
    """A function that runs jobs, and how its argument and answer are put into bytes."""

    function: Callable[..., Any]
    is_async: bool
    decode_job: Decoder
    decode_answer: Decoder | None
    # The name of the parameter that is told how the job came.
    delivery: str | None

    def call(self, value: bytes, delivery: Delivery) -> Any:
        """Call the function with a job; of an async one this is to be awaited."""
        if self.delivery is None:
            return self.function(self.decode_job(value))
        return self.function(self.decode_job(value), **{self.delivery: delivery})


def make_worker(function: Callable[..., Any]) -> Worker:
    """Read a worker's annotations; a clear error for one that does not take one job."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise DispatchError(
            f"an annotation of worker {name} cannot be read: {error}",
            "import the type at run time and define it before the worker, in its module",
        ) from None
    told = next((key for key, hint in hints.items() if hint is Delivery), None)
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name != told
    ]
    if len(needed) != 1:
        raise DispatchError(
            f"worker {name} must take one job, not {len(needed)} arguments", "def work(job: Job)"
        )
    returns = hints.get("return")
    untyped = returns in (None, type(None), Any)
    try:
        return Worker(
            function,
            inspect.iscoroutinefunction(function),
            decoder(hints.get(needed[0].name, Any)),
            None if untyped else decoder(returns),
            told,
        )
    except HandlerError as error:
        raise DispatchError(error.message, error.hint) from None


def encode_job(job: Any) -> bytes:
    """A job in bytes; None cannot be one, because a record without a value is a signal."""
    payload = encode(job)
    if payload is None:
        raise DispatchError("None is not a job", "submit bytes, text or a typed object")
    return payload


def encode_answer(answer: Any) -> tuple[bytes | None, str]:
    """A worker's answer in bytes, and how it was put into them."""
    if answer is None:
        return None, "none"
    kind = "bytes" if isinstance(answer, bytes) else "text" if isinstance(answer, str) else "json"
    return encode(answer), kind


def decode_answer(payload: bytes | None, kind: str, worker: Worker | None) -> Any:
    """The answer again: JSON as the worker's annotation says, or plain."""
    if kind == "none" or payload is None:
        return None
    if kind == "bytes":
        return payload
    if kind == "text":
        return payload.decode()
    if worker is not None and worker.decode_answer is not None:
        return worker.decode_answer(payload)
    return json.loads(payload)
