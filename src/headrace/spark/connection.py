"""The cluster that a source or sink connects to: its address and `kafka.*` settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.errors import UnknownSetting
from headrace.client.settings import ClientKind, read
from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security
from headrace.spark.errors import OptionError

PREFIX = "kafka."
BOOTSTRAP = "bootstrap"

# Settings without effect, refused as in the official connector.
REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "enable.auto.commit": "the checkpoint keeps the offsets; option group shows them to lag tools",
    "interceptor.classes": "interceptors are Java classes",
}
_FILES_ONLY = {
    "ssl.ca.pem": "use kafka.ssl.ca.location with a file",
    "ssl.certificate.pem": "use kafka.ssl.certificate.location with a file",
    "ssl.key.pem": "use kafka.ssl.key.location with a file",
    "ssl.keystore.location": "use kafka.ssl.certificate.location with a PEM file",
}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a cluster is and how connections are secured; can be sent to tasks."""

    servers: tuple[tuple[str, int], ...]
    settings: Mapping[str, str]
    """With librdkafka's names."""

    @property
    def bootstrap(self) -> str:
        """The servers as HOST:PORT,..."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    def cluster(self, timeout_s: float) -> ClusterClient:
        """A client of the cluster, which the caller closes."""
        return ClusterClient(self.servers, Security(self.settings), timeout_s)


def read_connection(
    options: Mapping[str, str], kind: ClientKind = "consumer", refused: Mapping[str, str] = REFUSED
) -> tuple[Connection, dict[str, str]]:
    """The connection, and the `kafka.*` settings without that prefix; OptionError if wrong.

    `refused` are settings that cannot be used, each with a hint.
    """
    kafka = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    if BOOTSTRAP in options:
        if "bootstrap.servers" in kafka:
            raise OptionError("both bootstrap and kafka.bootstrap.servers are given", "give one")
        kafka["bootstrap.servers"] = options[BOOTSTRAP]
    if not kafka.get("bootstrap.servers"):
        raise OptionError(
            "kafka.bootstrap.servers is missing", 'option("kafka.bootstrap.servers", "HOST:PORT")'
        )
    for name in refused.keys() & kafka.keys():
        raise OptionError(f"{PREFIX}{name} cannot be set", refused[name])
    try:
        config, _ = read(kafka, kind)
    except UnknownSetting as problem:
        raise OptionError(str(problem), f"{kind} settings are given as {PREFIX}NAME") from None
    for name in sorted(_FILES_ONLY.keys() & config.keys()):
        raise OptionError(f"{PREFIX}{name} cannot be used here", _FILES_ONLY[name])
    settings = {name: str(value) for name, value in config.items()}
    try:
        Security(settings)
    except ValueError as problem:
        raise OptionError(str(problem), "given as kafka.*") from None
    try:
        servers = tuple(parse_servers(kafka["bootstrap.servers"]))
    except ValueError as problem:
        raise OptionError(f"{PREFIX}{problem}") from None
    return Connection(servers, settings), kafka
