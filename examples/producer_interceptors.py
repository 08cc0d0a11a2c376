"""Interceptors and serialisers: python examples/producer_interceptors.py [HOST:PORT]."""

from __future__ import annotations

import sys

from headrace.client import Consumer, Producer, ProducerInterceptor, RecordMetadata
from headrace.client.interceptors import Outgoing

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


class Trace(ProducerInterceptor):
    def on_send(self, record: Outgoing) -> Outgoing:
        record.headers = {"trace": "t-1"}
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        print("written" if error is None else f"failed: {error}")


with Producer(bootstrap, value_serializer="json", interceptors=[Trace()]) as producer:
    producer.send("traced", {"amount": 12}, key="o-1")

with Consumer(bootstrap, value_deserializer="json", start="earliest") as consumer:
    consumer.assign("traced")
    record = consumer.poll(30)
    print(record.value(), record.headers())
