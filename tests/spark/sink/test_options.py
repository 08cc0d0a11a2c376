"""The options of the sink: by the official names, and wrong ones refused with a hint."""

from __future__ import annotations

import pytest

from headrace.spark.errors import SinkError
from headrace.spark.sink.options import read_options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap": "a:1", "topik": "x"}, "did you mean topic"),
        ({"bootstrap": "a:1", "kafka.acks": "1"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.transactional.id": "x"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.enable.idempotence": "false"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.partitioner.class": "x.Y"}, "cannot be set"),
        ({"bootstrap": "a:b"}, "'a:b' is not HOST:PORT"),
        ({"bootstrap": "a:1", "kafka.compression.type": "brotli"}, "gzip, snappy, lz4, zstd"),
        ({"bootstrap": "a:1", "kafka.transaction.timeout.ms": "5m"}, "'5m' is not a whole number"),
        ({"bootstrap": "a:1", "kafka.security.protocol": "tls"}, "security.protocol 'tls'"),
        (
            {
                "bootstrap": "a:1",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "GSSAPI",
            },
            "sasl.mechanism 'GSSAPI'",
        ),
        (
            {"bootstrap": "a:1", "kafka.ssl.truststore.certificates": "-----BEGIN"},
            "use kafka.ssl.ca.location with a file",
        ),
        ({"bootstrap": "a:1", "kafka.lingerms": "1"}, "linger.ms"),
    ],
)
def test_a_wrong_option_of_the_sink_fails_with_a_hint(given: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        read_options(given)


def test_options_go_by_the_official_names() -> None:
    options = read_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "topic": "out",
            "kafka.compression.type": "lz4",
            "kafka.transaction.timeout.ms": "60000",
            # As the sink does anyhow.
            "kafka.acks": "-1",
            "kafka.enable.idempotence": "true",
            "checkpointlocation": "/c",
        }
    )
    assert options.topic == "out"
    assert options.connection.settings["bootstrap.servers"] == "a:1"
    assert options.connection.settings["compression.type"] == "lz4"
    assert options.connection.settings["transaction.timeout.ms"] == "60000"
    assert options.connection.settings["acks"] == "all"
