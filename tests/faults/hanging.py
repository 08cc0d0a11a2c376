"""Transactions that Apache Kafka leaves open when its only broker is killed.

A coordinator that comes back with a decided transaction asks where its partitions are led. If it
does so before the broker has read its topics, they count as deleted: no marker is written, and
the transaction is over for its coordinator while it is open in its partitions. Nobody reads past
it, until an operator ends it; here a test is the operator.
"""

from __future__ import annotations

import time

from headrace.cli.aborting import find_producer, write_marker
from headrace.cli.hanging import find_hanging
from headrace.client.cluster import Cluster
from headrace.client.security import Security

# Longer than any transaction of the services may be open.
AGE_MS = 30_000
TIMEOUT_SECONDS = 30.0


def end_hanging(bootstrap: str) -> int:
    """Do as `headrace txn hanging` and `headrace txn abort`; how many there were."""
    host, _, port = bootstrap.rpartition(":")
    with Cluster([(host, int(port))], Security({}), timeout_s=TIMEOUT_SECONDS) as cluster:
        rows = find_hanging(cluster, {}, round(time.time() * 1000) - AGE_MS)
        for row in rows:
            key = str(row["topic"]), int(str(row["partition"]))
            write_marker(cluster, key, find_producer(cluster, key, int(str(row["start"]))))
    return len(rows)
