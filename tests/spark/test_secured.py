"""Source and sink by TLS and SASL, with the settings as Java clients have them; a long form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.apache_kafka import ApacheKafka
from tests.secured_kafka import certificate, secured_kafka
from tests.spark.reruns import run_to_end

from headrace.spark import exactly_once, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["certificate", "secured_kafka"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LOGIN = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="{}";'
)


def as_alice(kafka: ApacheKafka, certificate: Path, password: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": LOGIN.format(password),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificate),
    }


def test_a_topic_is_written_and_read_by_a_user(
    spark: SparkSession, secured_kafka: ApacheKafka, certificate: Path, tmp_path: Path
) -> None:
    register(spark)
    options = as_alice(secured_kafka, certificate, "alice-secret")
    spark.range(300).selectExpr("CAST(id AS STRING) AS value").write.format("headrace").options(
        **options, topic="copied"
    ).mode("append").save()
    source = {**options, "subscribe": "copied", "startingOffsets": "earliest"}
    stream = spark.readStream.format("headrace").options(**source).load().select("value")
    run_to_end(
        exactly_once(
            stream, tasks=2, key="value", checkpoint=str(tmp_path / "checkpoint"),
            options={**options, "topic": "copies"},
        )
    )  # fmt: skip
    copies = spark.read.format("headrace").options(**{**source, "subscribe": "copies"}).load()
    found = [int(row["value"]) for row in copies.select("value").collect()]
    assert sorted(found) == list(range(300))


def test_a_wrong_password_is_named(
    spark: SparkSession, secured_kafka: ApacheKafka, certificate: Path
) -> None:
    register(spark)
    options = as_alice(secured_kafka, certificate, "wrong")
    with pytest.raises(Exception, match=r"SASL_AUTHENTICATION_FAILED|authentication"):
        spark.read.format("headrace").options(**options, subscribe="copied").load().collect()
