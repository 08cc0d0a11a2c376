"""TLS and SASL, by librdkafka's setting names; the long form against a secured Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.apache_kafka import ApacheKafka
from tests.secured_kafka import as_admin, certificate, secured_kafka

from headrace.client.wire.batch_reader import BatchReader
from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.security import Security
from headrace.protocol.errors import ErrorCode, KafkaError

__all__ = ["certificate", "secured_kafka"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "tls"}, "sasl_ssl"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-512"),
        ({"security.protocol": "sasl_plaintext"}, "PLAIN"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(settings: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Security(settings)


def brokers(kafka: ApacheKafka, settings: Mapping[str, str]) -> list[int]:
    with ClusterClient([("127.0.0.1", kafka.port)], Security(settings), timeout_s=10.0) as cluster:
        return [broker.node_id for broker in cluster.brokers()]


@pytest.mark.long
def test_a_user_comes_in_by_tls_with_each_mechanism(
    secured_kafka: ApacheKafka, certificate: Path
) -> None:
    admin = as_admin(certificate)
    alice = {**admin, "sasl.username": "alice", "sasl.password": "alice-secret"}
    assert brokers(secured_kafka, admin) == [1]
    for mechanism in ("SCRAM-SHA-256", "scram-sha-512"):
        assert brokers(secured_kafka, {**alice, "sasl.mechanism": mechanism}) == [1]
    unchecked = {**admin, "enable.ssl.certificate.verification": "false"}
    del unchecked["ssl.ca.location"]
    assert brokers(secured_kafka, unchecked) == [1]


@pytest.mark.long
def test_a_stranger_stays_outside(secured_kafka: ApacheKafka, certificate: Path) -> None:
    admin = as_admin(certificate)
    for settings in (
        {**admin, "sasl.password": "wrong"},
        {**admin, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "nobody"},
    ):
        with pytest.raises(KafkaError) as caught:
            brokers(secured_kafka, settings)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(OSError, match="certificate verify failed"):
        brokers(secured_kafka, {**admin, "ssl.ca.location": "probe"})
    with pytest.raises(OSError, match=r"Kafka protocol|closed the connection|reset"):
        brokers(secured_kafka, {})


@pytest.mark.long
def test_whole_batches_are_fetched_by_tls(secured_kafka: ApacheKafka, certificate: Path) -> None:
    settings = as_admin(certificate)
    producer = Producer({"bootstrap.servers": secured_kafka.bootstrap, "log_level": 0, **settings})
    producer.produce("secret", b"value")
    assert producer.flush(30) == 0
    with (
        ClusterClient(
            [("127.0.0.1", secured_kafka.port)], Security(settings), timeout_s=30.0
        ) as cluster,
        BatchReader(cluster, "secret", 0) as reader,
    ):
        [fetched] = reader.fetch(0, 1)
    assert [header.record_count for _, header in fetched.batches] == [1]
