"""Transactions that Apache Kafka leaves open when its only broker is killed.

Its log says that a decided transaction was completed after the broker came back, and no marker is
in the partitions; likely they counted as deleted, since their leaders were not known yet. So it is
over for its coordinator and open in its partitions, and nobody reads past it until an operator ends
it; here a test is the operator.
"""

from __future__ import annotations

import time

from headrace.cli.common.connection import KafkaOptions
from headrace.client.admin.aborts import find_hanging, find_producer, write_marker

# Longer than any transaction of the services may be open.
AGE_MS = 30_000


def end_hanging(bootstrap: str) -> int:
    """Do as `headrace txn hanging` and `headrace txn abort`; how many there were."""
    with KafkaOptions(bootstrap=bootstrap).cluster() as cluster:
        rows = find_hanging(cluster, {}, round(time.time() * 1000) - AGE_MS)
        for row in rows:
            key = (row.topic, row.partition)
            write_marker(cluster, key, find_producer(cluster, key, row.start))
    return len(rows)
