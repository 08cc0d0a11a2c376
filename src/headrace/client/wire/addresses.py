"""Addresses of brokers, as users write them."""

from __future__ import annotations

DEFAULT_PORT = 9092
PORT_MAX = 65_535


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of HOST:PORT, without the brackets around an IPv6 host; else ValueError."""
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or port.endswith("]")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of `bootstrap.servers`; ValueError if one is not HOST:PORT."""
    servers = []
    for server in filter(None, (part.strip() for part in text.split(","))):
        try:
            # Kafka allows the name of a listener before the address.
            servers.append(parse_address(server.rpartition("://")[2], DEFAULT_PORT))
        except ValueError:
            raise ValueError(
                f"bootstrap.servers: {server!r} is not HOST:PORT, as in kafka-1:9092"
            ) from None
    return servers
