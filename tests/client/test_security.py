"""TLS and SASL, by librdkafka's setting names; the long form against a secured Apache Kafka."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.apache_kafka import QUICK_JVM, ApacheKafka

from headrace.client.cluster import Cluster
from headrace.client.raw import RawReader
from headrace.client.security import Security
from headrace.protocol.errors import ErrorCode, KafkaError

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret";'
)
SCRAM_USERS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and `kafka.pem` with its key."""
    folder = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    command += f" -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/ca.pem"
    subprocess.run(command.split(), check=True, capture_output=True)
    text = (folder / "key").read_text() + (folder / "ca.pem").read_text()
    (folder / "kafka.pem").write_text(text)
    return folder / "ca.pem"


@pytest.fixture(scope="module")
def kafka(certificate: Path) -> Iterator[ApacheKafka]:
    """Apache Kafka that wants TLS and a user; `alice` may come with SCRAM."""
    listener = "listener.name.plaintext"
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": PLAIN_USERS,
        f"{listener}.scram-sha-256.sasl.jaas.config": SCRAM_USERS,
        f"{listener}.scram-sha-512.sasl.jaas.config": SCRAM_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.with_name("kafka.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    with ApacheKafka(settings=settings, heap="512m", jvm=QUICK_JVM) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **as_admin(certificate)})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(mechanism, 4096), b"alice-secret"
            )
            admin.alter_user_scram_credentials([change])["alice"].result(30)
        yield kafka


def as_admin(certificate: Path) -> dict[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "admin-secret",
    }


def brokers(kafka: ApacheKafka, settings: Mapping[str, str]) -> list[int]:
    with Cluster([("127.0.0.1", kafka.port)], Security(settings), timeout_s=10.0) as cluster:
        return [broker.node_id for broker in cluster.brokers()]


@pytest.mark.long
def test_a_user_comes_in_by_tls_with_each_mechanism(kafka: ApacheKafka, certificate: Path) -> None:
    admin = as_admin(certificate)
    alice = {**admin, "sasl.username": "alice", "sasl.password": "alice-secret"}
    assert brokers(kafka, admin) == [1]
    for mechanism in ("SCRAM-SHA-256", "scram-sha-512"):
        assert brokers(kafka, {**alice, "sasl.mechanism": mechanism}) == [1]
    unchecked = {**admin, "enable.ssl.certificate.verification": "false"}
    del unchecked["ssl.ca.location"]
    assert brokers(kafka, unchecked) == [1]


@pytest.mark.long
def test_a_stranger_stays_outside(kafka: ApacheKafka, certificate: Path) -> None:
    admin = as_admin(certificate)
    for settings in (
        {**admin, "sasl.password": "wrong"},
        {**admin, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "nobody"},
    ):
        with pytest.raises(KafkaError) as caught:
            brokers(kafka, settings)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(OSError, match="certificate verify failed"):
        brokers(kafka, {**admin, "ssl.ca.location": "probe"})
    with pytest.raises(OSError, match=r"Kafka protocol|closed the connection|reset"):
        brokers(kafka, {})


@pytest.mark.long
def test_whole_batches_are_fetched_by_tls(kafka: ApacheKafka, certificate: Path) -> None:
    settings = as_admin(certificate)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **settings})
    producer.produce("secret", b"value")
    assert producer.flush(30) == 0
    with (
        Cluster([("127.0.0.1", kafka.port)], Security(settings), timeout_s=30.0) as cluster,
        RawReader(cluster, "secret", 0) as reader,
    ):
        [fetched] = reader.fetch(0, 1)
    assert [header.record_count for _, header in fetched.batches] == [1]
