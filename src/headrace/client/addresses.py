"""Addresses of brokers: HOST:PORT[,HOST:PORT]."""

from __future__ import annotations

DEFAULT_PORT = 9092
PORT_MAX = 65_535


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of `bootstrap.servers`; brackets around an IPv6 host are taken off."""
    servers = []
    for server in filter(None, (part.strip() for part in text.split(","))):
        # Kafka allows the name of a listener before the address.
        address = server.rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = address, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > PORT_MAX:
            raise ValueError(f"bootstrap.servers: {server!r} is not HOST:PORT")
        servers.append((host, int(port)))
    return servers
