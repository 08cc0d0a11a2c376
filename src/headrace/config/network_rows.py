"""Broker settings of the network: listeners, sockets, connection limits, queues, threads."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX
from headrace.config.settings import ConfigError, Setting, Settings, boolean, integer, listing, long
from headrace.config.validators import address_counts, at_least, between, not_empty

_CONNECTIONS_MAX = 10_000
_SOCKET_BUFFER_DOC = (
    "-1 leaves it to the operating system, which grows it as needed; a fixed size costs large "
    "batches many more system calls."
)


def check_queued_bytes(settings: Settings) -> None:
    """Raise ConfigError if no request of the largest size could ever be queued."""
    queued, largest = (
        settings.int("queued.max.request.bytes"),
        settings.int("socket.request.max.bytes"),
    )
    if 0 < queued < largest:
        raise ConfigError(
            "queued.max.request.bytes",
            f"{queued} is less than socket.request.max.bytes ({largest})",
        )


# fmt: off
NETWORK_ROWS: tuple[Setting, ...] = (
    listing("listeners", ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, each `NAME://host:port`; an empty host is every interface, port 0 "
        "is any free port. Loopback by default, because there is no authentication.",
        not_empty(), kafka_default="PLAINTEXT://:9092"),
    listing("advertised.listeners", None,
        "Addresses that clients are given; when not set, those of `listeners`."),
    listing("listener.security.protocol.map", ("PLAINTEXT:PLAINTEXT",),
        "Protocol of each listener name, as `NAME:PROTOCOL`. Only PLAINTEXT works today, so only "
        "that is in the default.", kafka_default="every protocol under its own name"),
    boolean("headrace.allow.insecure.listen", False,
        "Must be true to listen beyond loopback without authentication."),
    integer("socket.send.buffer.bytes", -1,
        f"Send buffer of each connection's socket; {_SOCKET_BUFFER_DOC}",
        at_least(-1), unit="bytes", kafka_default="102400"),
    integer("socket.receive.buffer.bytes", -1,
        f"Receive buffer of each connection's socket; {_SOCKET_BUFFER_DOC}",
        at_least(-1), unit="bytes", kafka_default="102400"),
    integer("socket.request.max.bytes", 100 << 20,
        "The largest request; a connection that announces a larger one is closed.",
        at_least(1), unit="bytes"),
    integer("socket.listen.backlog.size", 50,
        "Connections that may wait to be accepted.", at_least(1)),
    integer("max.connections", _CONNECTIONS_MAX,
        "Connections at a time, over all listeners; further ones are closed at once. Finite, so "
        "that a flood cannot take every descriptor.", at_least(0), kafka_default=str(INT_MAX)),
    integer("max.connections.per.ip", _CONNECTIONS_MAX,
        "Connections at a time from one address; further ones are closed at once. Finite for the "
        "same reason as `max.connections`.", at_least(0), kafka_default=str(INT_MAX)),
    listing("max.connections.per.ip.overrides", (),
        "Other limits for single addresses, as `host:count`.", address_counts()),
    long("connections.max.idle.ms", 600_000,
        "A connection without a request for this long is closed; -1: never.",
        at_least(-1), unit="ms"),
    integer("queued.max.requests", 500,
        "Writes that wait for their sync at a time, over all connections, before this node stops "
        "reading from connections that have a request under way. Other requests are not counted.",
        at_least(1)),
    long("queued.max.request.bytes", 128 << 20,
        "Bytes of large requests that this node receives at a time; further ones wait. -1: no "
        "limit. Finite, so that memory is bounded.",
        at_least(-1), unit="bytes", kafka_default="-1"),
    integer("num.network.threads", 3,
        "Threads that read data from disk that is not in the page cache. One event loop serves "
        "every connection, and never waits for a disk.", between(1, 1024)),
    integer("num.io.threads", 8,
        "Threads that sync log files to disk; each file has at most one sync in flight.",
        between(1, 1024)),
    boolean("headrace.sendfile", False,
        "Whether large plain-text fetches are sent by `sendfile` instead of by one copy."),
    integer("fetch.max.bytes", 55 << 20,
        "The most record bytes in one Fetch response, whatever the client asks for.",
        at_least(1024), unit="bytes"),
    integer("max.incremental.fetch.session.cache.slots", 1000,
        "Fetch sessions (KIP-227) kept at a time; further fetches go without a session.",
        at_least(0)),
    integer("max.request.partition.size.limit", 2000,
        "The most partitions in one DescribeTopicPartitions response.", at_least(1)),
)
# fmt: on
