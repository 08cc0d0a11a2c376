"""Addresses of brokers, as users write them."""

from __future__ import annotations

import pytest

from headrace.client.wire.addresses import parse_servers


def test_servers_may_lack_a_port_and_name_a_listener() -> None:
    assert parse_servers("kafka-1, [::1]:9093,,PLAINTEXT://kafka-2:1,[::2]") == [
        ("kafka-1", 9092),
        ("::1", 9093),
        ("kafka-2", 1),
        ("::2", 9092),
    ]


@pytest.mark.parametrize("text", ["kafka-1:9092,:1", "host:", "host:x", "host:70000"])
def test_a_server_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bootstrap.servers: '.*' is not HOST:PORT"):
        parse_servers(text)
