"""Committing by hand: python examples/consumer_commits.py [HOST:PORT]."""

from __future__ import annotations

import sys
from typing import Any

from headrace.client import Consumer, Producer
from headrace.client.errors import CommitFailed

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
answers: list[CommitFailed | None] = []


def answered(error: CommitFailed | None, partitions: list[Any]) -> None:
    answers.append(error)


with Producer(bootstrap) as producer:
    producer.send_and_wait("payments", "one", partition=0)

settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False}
with Consumer(settings, group="accounts", start="earliest") as consumer:
    consumer.subscribe("payments")
    while not consumer.poll_batch(10):
        pass
    consumer.commit_sync()  # all that was returned so far
    print(consumer.committed([("payments", 0)]))
    consumer.commit_async({("payments", 0): 0}, answered)  # or what you say
    while not answers:
        consumer.poll(0.1)
    print(answers, consumer.committed([("payments", 0)]))
