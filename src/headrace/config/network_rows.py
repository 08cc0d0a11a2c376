"""Broker settings of the network: listeners, sockets, connection limits, queues, threads."""

from __future__ import annotations

from headrace.config.kinds import INT_MAX, Kind
from headrace.config.settings import ConfigError, Setting, Settings
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


NETWORK_ROWS: tuple[Setting, ...] = (
    Setting(
        name="listeners",
        kind=Kind.LIST,
        default=("PLAINTEXT://127.0.0.1:9092",),
        valid=not_empty(),
        kafka_default="PLAINTEXT://:9092",
        doc="Addresses to listen on, each `NAME://host:port`; an empty host is every interface, "
        "port 0 is any free port. Only loopback by default, because there is no authentication.",
    ),
    Setting(
        name="advertised.listeners",
        kind=Kind.LIST,
        default=None,
        doc="Addresses told to clients; when not set, those of `listeners`.",
    ),
    Setting(
        name="listener.security.protocol.map",
        kind=Kind.LIST,
        default=("PLAINTEXT:PLAINTEXT",),
        kafka_default="every protocol under its own name",
        doc="Protocol of each listener name, as `NAME:PROTOCOL`. Only PLAINTEXT works today, so "
        "only that is in the default.",
    ),
    Setting(
        name="headrace.allow.insecure.listen",
        kind=Kind.BOOLEAN,
        default=False,
        doc="Must be true to listen beyond loopback without authentication.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        kind=Kind.INT,
        default=-1,
        valid=at_least(-1),
        unit="bytes",
        kafka_default="102400",
        doc=f"Send buffer of each connection's socket; {_SOCKET_BUFFER_DOC}",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        kind=Kind.INT,
        default=-1,
        valid=at_least(-1),
        unit="bytes",
        kafka_default="102400",
        doc=f"Receive buffer of each connection's socket; {_SOCKET_BUFFER_DOC}",
    ),
    Setting(
        name="socket.request.max.bytes",
        kind=Kind.INT,
        default=100 << 20,
        valid=at_least(1),
        unit="bytes",
        doc="The largest request; a connection that announces a larger one is closed.",
    ),
    Setting(
        name="socket.listen.backlog.size",
        kind=Kind.INT,
        default=50,
        valid=at_least(1),
        doc="Connections that may wait to be accepted.",
    ),
    Setting(
        name="max.connections",
        kind=Kind.INT,
        default=_CONNECTIONS_MAX,
        valid=at_least(0),
        kafka_default=str(INT_MAX),
        doc="Connections at a time, over all listeners; further ones are closed at once. Finite, "
        "so that a flood cannot take every descriptor.",
    ),
    Setting(
        name="max.connections.per.ip",
        kind=Kind.INT,
        default=_CONNECTIONS_MAX,
        valid=at_least(0),
        kafka_default=str(INT_MAX),
        doc="Connections at a time from one address; further ones are closed at once. Finite for "
        "the same reason as `max.connections`.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        kind=Kind.LIST,
        default=(),
        valid=address_counts(),
        doc="Other limits for single addresses, as `host:count`.",
    ),
    Setting(
        name="connections.max.idle.ms",
        kind=Kind.LONG,
        default=600_000,
        valid=at_least(-1),
        unit="ms",
        doc="A connection without a request for this long is closed; -1: never.",
    ),
    Setting(
        name="queued.max.requests",
        kind=Kind.INT,
        default=500,
        valid=at_least(1),
        doc="Requests that this node holds unanswered before it stops reading from connections. "
        "Requests that wait by their own wish (fetches, joins) are not counted.",
    ),
    Setting(
        name="queued.max.request.bytes",
        kind=Kind.LONG,
        default=128 << 20,
        valid=at_least(-1),
        unit="bytes",
        kafka_default="-1",
        doc="Bytes of unanswered requests that this node holds before it stops reading from "
        "connections; -1: no limit. Finite, so that memory is bounded.",
    ),
    Setting(
        name="num.network.threads",
        kind=Kind.INT,
        default=3,
        valid=between(1, 1024),
        doc="Threads that read cold data from disk for fetches, so that the event loop, which "
        "serves every connection, never waits for a disk.",
    ),
    Setting(
        name="num.io.threads",
        kind=Kind.INT,
        default=8,
        valid=between(1, 1024),
        doc="Threads that sync log files to disk; each file has at most one sync in flight.",
    ),
    Setting(
        name="headrace.sendfile",
        kind=Kind.BOOLEAN,
        default=False,
        doc="Whether large plain-text fetches are sent by `sendfile` instead of by one copy.",
    ),
    Setting(
        name="fetch.max.bytes",
        kind=Kind.INT,
        default=55 << 20,
        valid=at_least(1024),
        unit="bytes",
        doc="The most record bytes in one fetch answer, whatever the client asks for.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        kind=Kind.INT,
        default=1000,
        valid=at_least(0),
        doc="Fetch sessions (KIP-227) kept at a time; further fetches go without a session.",
    ),
    Setting(
        name="max.request.partition.size.limit",
        kind=Kind.INT,
        default=2000,
        valid=at_least(1),
        doc="The most partitions in one DescribeTopicPartitions answer.",
    ),
)
