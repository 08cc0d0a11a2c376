"""The topics that Spark reads in the bench, filled with whole batches over the wire."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.leaders import LATEST, Leaders
from headrace.client.wire.security import Security
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.compression import Codec
from headrace.protocol.records import Record

PARTITIONS = 4
BATCH_BYTES = 64 * 1024
_PRODUCE_VERSION = 9
_VARIANTS = 8
_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Load:
    """So many records of one size in one codec."""

    topic: str
    records: int
    value_bytes: int
    codec: Codec = Codec.NONE

    @property
    def records_per_batch(self) -> int:
        return max(1, BATCH_BYTES // self.value_bytes)

    @property
    def batches(self) -> int:
        """How many batches are written, the same number to each partition."""
        return max(1, self.records // self.records_per_batch // PARTITIONS) * PARTITIONS

    @property
    def written(self) -> int:
        """How many records there are in the end."""
        return self.batches * self.records_per_batch

    def fill(self, bootstrap: str) -> None:
        """Make the topic and write its records."""
        create_topic(bootstrap, self.topic)
        host, _, port = bootstrap.rpartition(":")
        with ClusterClient([(host, int(port))], Security(), _SECONDS_MAX) as cluster:
            variants = [memoryview(self._batch(seed)) for seed in range(_VARIANTS)]
            leader = cluster.brokers()[0]
            for number in range(self.batches):
                data = PartitionProduceData(
                    index=number % PARTITIONS, records=variants[number % _VARIANTS]
                )
                request = ProduceRequest(
                    acks=1,
                    timeout_ms=int(_SECONDS_MAX * 1000),
                    topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
                )
                answer = cluster.ask_broker(leader, request, ProduceResponse, _PRODUCE_VERSION)
                code = answer.responses[0].partition_responses[0].error_code
                if code:
                    raise RuntimeError(f"{self.topic} could not be filled: error {code}")
            self._wait_until_readable(cluster)

    def _wait_until_readable(self, cluster: ClusterClient) -> None:
        """Written is not yet synced, and only what is synced is read."""
        places = [(self.topic, partition) for partition in range(PARTITIONS)]
        deadline_s = time.monotonic() + _SECONDS_MAX
        while sum(Leaders(cluster, places).offsets(places, LATEST).values()) < self.written:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.topic} could not be filled in time")
            time.sleep(0.05)

    def _batch(self, seed: int) -> bytes:
        chance = random.Random(seed)
        now_ms = int(time.time() * 1000)
        # Half of each value is chance, so that a codec has work and a gain.
        filler = b"the quick brown fox jumps over the lazy dog " * (self.value_bytes // 40 + 1)
        half = self.value_bytes // 2
        return bytes(
            build_batch(
                [
                    Record(
                        number,
                        now_ms + number,
                        None,
                        chance.randbytes(half) + filler[: self.value_bytes - half],
                    )
                    for number in range(self.records_per_batch)
                ],
                codec=self.codec,
            )
        )


def create_topic(bootstrap: str, topic: str) -> None:
    """Make a topic, as soon as the broker answers."""
    deadline_s = time.monotonic() + _SECONDS_MAX
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_SECONDS_MAX)
            return
        except Exception:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)
