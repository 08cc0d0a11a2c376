"""A loop by hand on confluent-kafka: the limit, and the least that a user can write."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException

from benchmarks.rivals.work import Meter, consumer_settings, decode_order, given, sleep_s

_BATCH = 500


def main() -> None:
    load = given()
    meter = Meter(load)
    consumer = Consumer(consumer_settings(load))
    consumer.subscribe([load.topic])
    over = False
    if load.mode == "consume":
        while not over:
            for message in consumer.consume(_BATCH, 0.2):
                value = _value(message)
                decode_order(value)
                over = meter.count()
    elif load.work == "sleep":
        while not over:
            message = consumer.poll(1.0)
            if message is not None:
                time.sleep(sleep_s(decode_order(_value(message))))
                over = meter.count()
    else:
        while not over:
            message = consumer.poll(1.0)
            if message is not None:
                value = _value(message)
                decode_order(value)
                over = meter.count()
    consumer.close()
    meter.tell()


def _value(message: Any) -> bytes:
    if message.error() is not None:
        raise KafkaException(message.error())
    value: bytes = message.value()
    return value


if __name__ == "__main__":
    main()
