"""Listeners: addresses bound and addresses told to clients."""

from __future__ import annotations

import pytest

from headrace.config import (
    BROKER_ROWS,
    ConfigError,
    Endpoint,
    Settings,
    advertised_listeners,
    listeners,
)

NAMES = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"}


def test_loopback_is_the_default() -> None:
    settings = Settings.parse(BROKER_ROWS)
    assert listeners(settings) == [Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)]
    assert advertised_listeners(settings) == listeners(settings)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://localhost:0", "localhost", 0),
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("plaintext://kafka-1.example.org:19092", "kafka-1.example.org", 19092),
    ],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    given = {
        "listeners": text,
        "advertised.listeners": "PLAINTEXT://outside:1",
        "headrace.allow.insecure.listen": "true",
    }
    (endpoint,) = listeners(Settings.parse(BROKER_ROWS, given))
    assert (endpoint.name, endpoint.host, endpoint.port) == ("PLAINTEXT", host, port)
    assert str(endpoint).lower() == text.lower()


def test_a_listener_may_have_a_name_of_its_own() -> None:
    settings = Settings.parse(
        BROKER_ROWS,
        {
            **NAMES,
            "listeners": "INTERNAL://127.0.0.1:2",
            "advertised.listeners": "INTERNAL://inside:2",
        },
    )
    assert [endpoint.name for endpoint in listeners(settings)] == ["INTERNAL"]
    assert advertised_listeners(settings) == [Endpoint("INTERNAL", "PLAINTEXT", "inside", 2)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"listeners": "127.0.0.1:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "listeners"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65536"}, "listeners"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "listeners"),
        ({**NAMES, "listeners": "PLAINTEXT://[::1]:1,INTERNAL://[::1]:2"}, "listeners"),
        ({"listeners": "PLAINTEXT://10.0.0.1:1"}, "listeners"),
        ({"listeners": "PLAINTEXT://:1"}, "listeners"),
        (
            {"listeners": "PLAINTEXT://:1", "headrace.allow.insecure.listen": "true"},
            "advertised.listeners",
        ),
        ({"listeners": "SASL_SSL://127.0.0.1:9092"}, "listeners"),
        ({"listener.security.protocol.map": "X:SSL"}, "listener.security.protocol.map"),
        ({"advertised.listeners": "OTHER://a:1"}, "advertised.listeners"),
        ({**NAMES, "advertised.listeners": "INTERNAL://a:1"}, "advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners"),
    ],
)
def test_listeners_that_cannot_work_are_refused(given: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(BROKER_ROWS, given)
    assert caught.value.name == name
