"""What speaks to a cluster over the wire, whoever built it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.client.compacted import CompactedReader as CompactedReader
    from headrace.client.consumer import Consumer as Consumer
    from headrace.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from headrace.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from headrace.client.producer import Producer as Producer
    from headrace.client.sent import RecordMetadata as RecordMetadata
    from headrace.client.sent import Sent as Sent
    from headrace.client.switches import Switches as Switches
else:
    # The command line tool mostly speaks the wire itself, and starts quickly that way.
    __getattr__, __dir__ = lazy_names(
        __name__,
        compacted="CompactedReader",
        consumer="Consumer",
        interceptors="ConsumerInterceptor ProducerInterceptor",
        producer="Producer",
        sent="RecordMetadata Sent",
        switches="Switches",
    )
