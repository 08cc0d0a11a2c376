"""Kafka's own setting names: translated, taken, without effect, or refused with the nearest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibraryProducer
from tests.apache_kafka import java_tool
from tests.client.kafkas import Kafka
from tests.waiting import wait_until

from headrace.client import Consumer, Producer
from headrace.client.consumer.start import EARLIEST, LATEST, Start, parse_reset, parse_start
from headrace.client.errors import UnknownSetting
from headrace.client.java_secrets import SECRETS
from headrace.client.setting_names import (
    LIBRARY_BOTH,
    LIBRARY_CONSUMER,
    LIBRARY_PRODUCER,
    REFUSED,
    WITHOUT_EFFECT,
)
from headrace.client.settings import OWN_CONSUMER, OWN_PRODUCER, ClientKind, _known, translate

HERE = {"bootstrap.servers": "127.0.0.1:1"}
NAMES = """
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

public class Names {
    public static void main(String[] args) {
        ProducerConfig.configNames().forEach(name -> System.out.println("producer " + name));
        ConsumerConfig.configNames().forEach(name -> System.out.println("consumer " + name));
    }
}
"""


def translated(kind: ClientKind, **settings: Any) -> dict[str, Any]:
    """Settings with underscores for dots, translated."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = translate({**HERE, **given}, kind)
    del config["bootstrap.servers"]
    return config


def test_every_setting_of_kafkas_own_clients_is_known(tmp_path: Path) -> None:
    source = tmp_path / "Names.java"
    source.write_text(NAMES)
    # The launcher compiles a source file by itself when it is given one.
    rows = [line.split() for line in java_tool(str(source)).splitlines()]
    assert len(rows) > 200
    unknown = [
        (kind, name)
        for kind, name in rows
        if name not in REFUSED
        and name not in WITHOUT_EFFECT
        and name not in _known("producer" if kind == "producer" else "consumer")
    ]
    assert unknown == []


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_every_name_passed_on_is_one_that_the_library_has(kind: ClientKind) -> None:
    names = LIBRARY_BOTH | (LIBRARY_PRODUCER if kind == "producer" else LIBRARY_CONSUMER)
    make = LibraryProducer if kind == "producer" else LibraryConsumer
    unknown = []
    for name in sorted(names - {"error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger"}):
        try:
            make({**HERE, "group.id": "g", "log_level": 0, name: "?"})
        except (KafkaException, TypeError, ValueError) as problem:
            unknown += [name] if "No such configuration property" in str(problem) else []
    assert unknown == []


def test_memory_is_bounded_in_bytes_and_in_records() -> None:
    assert translated("producer", buffer_memory=33_554_432) == {
        "queue.buffering.max.kbytes": 32_768,
        "queue.buffering.max.messages": 131_072,
    }


@pytest.mark.parametrize(
    ("kind", "name", "value", "library_name"),
    [
        ("producer", "max.request.size", 5_000_000, "message.max.bytes"),
        ("producer", "request.timeout.ms", 5000, "request.timeout.ms"),
        ("consumer", "request.timeout.ms", 5000, "socket.timeout.ms"),
        ("consumer", "fetch.max.wait.ms", 100, "fetch.wait.max.ms"),
        ("consumer", "fetch.min.bytes", 10, "fetch.min.bytes"),
        ("consumer", "isolation.level", "read_uncommitted", "isolation.level"),
        ("consumer", "send.buffer.bytes", 1000, "socket.send.buffer.bytes"),
    ],
)
def test_a_name_is_translated(kind: ClientKind, name: str, value: Any, library_name: str) -> None:
    assert translate({**HERE, name: value}, kind) == {**HERE, library_name: value}


def test_values_are_translated_too() -> None:
    assert translated("producer", receive_buffer_bytes=-1) == {"socket.receive.buffer.bytes": 0}
    assert translate({"bootstrap.servers": ["a:1", "b:2"]}, "producer") == {
        "bootstrap.servers": "a:1,b:2"
    }
    levels = {"compression.gzip.level": 9, "compression.zstd.level": 3, "compression.type": "zstd"}
    assert translate({**HERE, **levels}, "producer")["compression.level"] == 3


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("range", "range"),
        ("sticky", "cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.StickyAssignor", "cooperative-sticky"),
        (["roundrobin"], "roundrobin"),
        # How Kafka's groups move to the cooperative one: all know range until the last has moved.
        (
            "org.apache.kafka.clients.consumer.RangeAssignor, "
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "range",
        ),
    ],
)
def test_assignors_by_name(given: Any, used: str) -> None:
    assert translated("consumer", partition_assignment_strategy=given) == {
        "partition.assignment.strategy": used
    }


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("producer", "linger.mss", "did you mean linger.ms?"),
        ("producer", "buffer.memroy", "did you mean buffer.memory?"),
        ("producer", "max.blok.ms", "did you mean max.block.ms?"),
        ("consumer", "auto.offset.rest", "did you mean auto.offset.reset?"),
        ("consumer", "fetch.max.wait", "did you mean fetch.max.wait.ms?"),
        ("consumer", "linger.ms", "is a setting of a producer, not of a consumer"),
        ("producer", "group.id", "is a setting of a consumer, not of a producer"),
        ("producer", "ssl.protocol", "cannot be used here: TLS 1.2"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(
    kind: ClientKind, name: str, words: str
) -> None:
    with pytest.raises(UnknownSetting) as caught:
        translate({**HERE, name: 1}, kind)
    assert words in str(caught.value)
    assert name in str(caught.value)


def test_a_client_without_a_cluster_is_refused() -> None:
    with pytest.raises(UnknownSetting, match=r"bootstrap\.servers is missing"):
        Producer({"acks": "all"})


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("producer", {"max.block.ms": "soon"}, "'soon' is not a whole number"),
        ("producer", {"max.block.ms": -1}, "-1 is too small; write 0 or more"),
        ("consumer", {"enable.auto.commit": "perhaps"}, "write true or false"),
        ("consumer", {"auto.offset.reset": "newest"}, "is not earliest, latest"),
        ("consumer", {"auto.offset.reset": "by_duration:2"}, "not a duration"),
        ("consumer", {"partition.assignment.strategy": "best"}, "'best' is unknown; use range"),
        ("consumer", {"max.poll.records": 0}, "0 is too small; write 1 or more"),
    ],
)
def test_a_wrong_value_is_refused(kind: ClientKind, settings: dict[str, Any], words: str) -> None:
    make = Producer if kind == "producer" else Consumer
    with pytest.raises(UnknownSetting, match=words):
        make({**HERE, **settings})


def test_what_java_needs_for_secrets_is_understood() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="s\'ecret; one";'
    )
    assert translated("producer", sasl_jaas_config=jaas) == {
        "sasl.username": "alice",
        "sasl.password": "s'ecret; one",
    }
    pem = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert translate({**HERE, **pem}, "consumer") == {
        **HERE,
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    for wrong in (
        {"ssl.truststore.location": "/trust.jks"},
        {"ssl.keystore.location": "/me.jks", "ssl.keystore.type": "JKS"},
        {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
    ):
        with pytest.raises(UnknownSetting):
            translate({**HERE, **wrong}, "consumer")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", None),
        ("by_duration:PT2H", Start("ago", 7_200_000)),
        ("by_duration:P1DT30M0.5S", Start("ago", 88_200_500)),
        ("by_duration:90s", Start("ago", 90_000)),
    ],
)
def test_resets_by_name(text: str, start: Start | None) -> None:
    assert parse_reset(text) == start


def test_starts_by_name() -> None:
    assert parse_start("2h30m") == Start("ago", 9_000_000)
    assert parse_start("1970-01-01T00:00:02Z") == Start("at", 2000)
    assert parse_start("1970-01-02") == Start("at", 86_400_000)
    with pytest.raises(UnknownSetting, match="use earliest, latest"):
        parse_start("yesterday")


def test_lists_of_names_do_not_overlap() -> None:
    for own in (OWN_PRODUCER, OWN_CONSUMER, SECRETS, frozenset(REFUSED)):
        assert not own & WITHOUT_EFFECT
    assert not LIBRARY_PRODUCER & LIBRARY_CONSUMER


def test_a_client_configured_as_javas_works(kafka: Kafka) -> None:
    topic = kafka.topic("java")
    common = {**kafka.quiet, "client.id": "shop", "metrics.num.samples": 2}
    producing = {
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "acks": "all",
        "compression.type": "lz4",
        "buffer.memory": 1_000_000,
        "max.block.ms": 10_000,
        "max.request.size": 100_000,
        "delivery.timeout.ms": 20_000,
    }
    consuming = {
        "group.id": f"g-{topic}",
        "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 100,
        "max.poll.records": 2,
        "partition.assignment.strategy": "sticky",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "100",
    }
    with Producer({**common, **producing}) as producer:
        for number in range(4):
            producer.send(topic, f"v{number}", key="k")
    with Consumer({**common, **consuming}) as consumer:
        consumer.subscribe(topic)
        batches: list[list[str]] = []

        def read_all() -> bool:
            batches.append([it.value() for it in consumer.poll_batch(timeout_s=0.1)])
            return sum(map(len, batches)) == 4

        wait_until(read_all)
    assert max(map(len, batches)) == 2
    assert [value for batch in batches for value in batch] == ["v0", "v1", "v2", "v3"]
    assert kafka.committed(f"g-{topic}", topic) == 4
