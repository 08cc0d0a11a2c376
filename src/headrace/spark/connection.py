"""How the options of a source or sink reach a cluster: its address and the `kafka.*` settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import UnknownSetting
from headrace.client.settings import read
from headrace.client.wire.cluster import Cluster, parse_servers
from headrace.client.wire.security import Security
from headrace.spark.errors import OptionError

PREFIX = "kafka."
BOOTSTRAP = "bootstrap"

# What would be a false promise, as in the official connector.
REFUSED = {
    "auto.offset.reset": "startingOffsets says where to begin",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "enable.auto.commit": "Spark's checkpoint keeps the place; group shows it to lag tools",
    "interceptor.classes": "they would be Java classes",
}
_FILES_ONLY = {
    "ssl.ca.pem": "kafka.ssl.ca.location names a file",
    "ssl.certificate.pem": "kafka.ssl.certificate.location names a file",
    "ssl.key.pem": "kafka.ssl.key.location names a file",
    "ssl.keystore.location": "kafka.ssl.certificate.location names a PEM file",
}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a cluster is and how connections are secured; can be sent to tasks."""

    servers: tuple[tuple[str, int], ...]
    settings: Mapping[str, str]
    """By the names that librdkafka gives them."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... as clients take it."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    def cluster(self, timeout_s: float) -> Cluster:
        """The cluster, with connections to be closed by the caller."""
        return Cluster(self.servers, Security(self.settings), timeout_s)


def read_connection(options: Mapping[str, str]) -> tuple[Connection, dict[str, str]]:
    """The connection that options ask for, and their `kafka.*` settings without that prefix."""
    kafka = {
        name[len(PREFIX) :]: value for name, value in options.items() if name.startswith(PREFIX)
    }
    if BOOTSTRAP in options:
        if "bootstrap.servers" in kafka:
            raise OptionError("bootstrap and kafka.bootstrap.servers say the same", "give one")
        kafka["bootstrap.servers"] = options[BOOTSTRAP]
    if not kafka.get("bootstrap.servers"):
        raise OptionError(
            "where is the cluster?", 'option("kafka.bootstrap.servers", "HOST:PORT") is missing'
        )
    for name in REFUSED.keys() & kafka.keys():
        raise OptionError(f"{PREFIX}{name} cannot be set", REFUSED[name])
    try:
        config, _ = read(kafka, "consumer")
    except UnknownSetting as problem:
        raise OptionError(str(problem), "it was given as kafka.*") from None
    insecurity = what_is_insecure(config)
    if insecurity is not None:
        raise OptionError(*insecurity)
    try:
        servers = tuple(parse_servers(kafka["bootstrap.servers"]))
    except ValueError as problem:
        raise OptionError(f"{PREFIX}{problem}") from None
    return Connection(servers, _texts(config)), kafka


def what_is_insecure(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why connections cannot be secured as a client's settings say, and what to do about it."""
    for name in sorted(_FILES_ONLY.keys() & config.keys()):
        return f"{PREFIX}{name} cannot be used here", _FILES_ONLY[name]
    try:
        Security(_texts(config))
    except ValueError as problem:
        return str(problem), "given as kafka.*"
    return None


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in config.items()}
