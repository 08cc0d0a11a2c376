"""Apache Kafka that wants TLS and a user; fixtures, imported by the tests that use them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.apache_kafka import QUICK_JVM, ApacheKafka

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret";'
)
SCRAM_USERS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


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
def secured_kafka(certificate: Path) -> Iterator[ApacheKafka]:
    """`admin` may come with PLAIN, `alice` with SCRAM."""
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
