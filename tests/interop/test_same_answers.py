"""Headrace and Apache Kafka, asked the same by the byte, give the same answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.broker.wire import Wire
from tests.interop import questions
from tests.interop.brokers import running
from tests.interop.questions import Question

from headrace.protocol.api import RESPONSES
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

# Ids, addresses, times and texts are each broker's own. A refusal here has no log start offset.
UNCOMPARED = {
    *("throttle_time_ms", "error_message", "topic_id", "cluster_id", "host", "port", "member_id"),
    *("log_append_time_ms", "log_start_offset", "batch_index_error_message"),
}
# What Apache Kafka answers while its coordinator loads, or before it knows of a new topic.
TRANSIENT = {3, 6, 14, 15, 16}
SETTLE_SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Wire, Wire]]:
    with ExitStack() as stack:
        addresses = [stack.enter_context(running(kind)) for kind in ("headrace", "apache")]
        headrace, apache = (stack.enter_context(Wire(address)) for address in addresses)
        yield headrace, apache


@pytest.mark.parametrize("ask", questions.ALL, ids=[about.__name__ for about in questions.ALL])
def test_answers_are_those_of_apache_kafka(
    ask: Callable[[], Iterable[Question]], both: tuple[Wire, Wire]
) -> None:
    differences = {}
    for label, request, version in ask():
        headrace, apache = (_answer(wire, request, version) for wire in both)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while (TRANSIENT & _codes(apache)) - _codes(headrace) and time.monotonic() < deadline:
            apache = _answer(both[1], request, version)
        if headrace != apache:
            differences[label] = {"headrace": headrace, "apache": apache}
    assert differences == {}


def _answer(wire: Wire, request: Message, version: int) -> Any:
    assert request.API_KEY is not None
    return _plain(wire.call(request, RESPONSES[request.API_KEY], version))


def _codes(answer: Any) -> set[int]:
    if isinstance(answer, dict):
        own = {answer["error_code"]} if "error_code" in answer else set()
        return own.union(*map(_codes, answer.values()))
    return set[int]().union(*map(_codes, answer)) if isinstance(answer, list) else set()


def _plain(value: Any) -> Any:
    """A message as plain values, without what is not compared, in an order of its own."""
    if isinstance(value, Message):
        names = [name for name in type(value).__annotations__ if name not in UNCOMPARED]
        if getattr(value, "error_code", 0) == ErrorCode.INVALID_TIMESTAMP:
            # Found in the header of the batch; the records themselves are not looked at.
            names.remove("record_errors")
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return sorted((_plain(row) for row in value), key=repr)
    return bytes(value) if isinstance(value, memoryview) else value
