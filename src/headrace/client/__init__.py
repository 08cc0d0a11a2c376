"""What speaks to a cluster over the wire, whoever built it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.compacted import CompactedReader
    from headrace.client.consumer import Consumer
    from headrace.client.interceptors import ConsumerInterceptor, ProducerInterceptor
    from headrace.client.producer import Producer
    from headrace.client.sent import RecordMetadata, Sent
    from headrace.client.switches import Switches

__all__ = [
    "CompactedReader",
    "Consumer",
    "ConsumerInterceptor",
    "Producer",
    "ProducerInterceptor",
    "RecordMetadata",
    "Sent",
    "Switches",
]

_HOMES = {
    "CompactedReader": "headrace.client.compacted",
    "Consumer": "headrace.client.consumer",
    "ConsumerInterceptor": "headrace.client.interceptors",
    "Producer": "headrace.client.producer",
    "ProducerInterceptor": "headrace.client.interceptors",
    "RecordMetadata": "headrace.client.sent",
    "Sent": "headrace.client.sent",
    "Switches": "headrace.client.switches",
}


def __getattr__(name: str) -> object:
    # The command line tool asks by the wire alone most of the time, and starts quickly that way.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
