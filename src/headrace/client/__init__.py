"""What speaks to a Kafka cluster over the wire, whichever broker runs it.

Applications use `producer.py` (outcomes in `delivery.py`, error meanings in `produce_errors.py`,
an operator's limits in `switches.py`), `consumer/` and `compacted.py`. All are configured by
Kafka's setting names, which `settings.py` translates. The rooms above also use `message.py`,
`payloads.py`, `dead_letters.py` and `clock.py`. `admin/` is what an operator does to topics,
groups and transactions; `wire/` is the small client that speaks the protocol itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.client.compacted import CompactedReader as CompactedReader
    from headrace.client.consumer.consumer import Consumer as Consumer
    from headrace.client.delivery import RecordMetadata as RecordMetadata
    from headrace.client.delivery import Sent as Sent
    from headrace.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from headrace.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from headrace.client.producer import Producer as Producer
    from headrace.client.switches import Switches as Switches
else:
    # The command line mostly speaks the wire itself, and starts faster without librdkafka.
    __getattr__, __dir__ = lazy_names(
        __name__,
        compacted="CompactedReader",
        consumer__consumer="Consumer",
        delivery="RecordMetadata Sent",
        interceptors="ConsumerInterceptor ProducerInterceptor",
        producer="Producer",
        switches="Switches",
    )
