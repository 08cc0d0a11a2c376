"""Reaching a cluster: the options every client verb has, and client errors in plain words."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.parsing import parse_pairs
from headrace.client.wire.addresses import parse_servers
from headrace.config import environment

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from headrace.client.wire.cluster import ClusterClient

CONNECT_TIMEOUT_SECONDS = 3.0
REQUEST_TIMEOUT_SECONDS = 30.0

# By the names of the error codes, for requests over our own wire.
HINTS = {
    "UNSUPPORTED_VERSION": "the broker is too old for this verb",
    "UNKNOWN_TOPIC_OR_PARTITION": "headrace topic describe TOPIC shows its partitions",
    "SASL_AUTHENTICATION_FAILED": "check -X sasl.username and -X sasl.password",
    "UNSUPPORTED_SASL_MECHANISM": "use another one: -X sasl.mechanism=NAME",
    "GROUP_AUTHORIZATION_FAILED": "this user needs rights on the group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "this user needs rights on the id",
    "CLUSTER_AUTHORIZATION_FAILED": "this user needs rights on the cluster",
    "TOPIC_AUTHORIZATION_FAILED": "this user needs rights on the topic",
}

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Brokers to connect to first: HOST:PORT[,HOST:PORT].",
        default_factory=environment.bootstrap_servers,
        show_default="127.0.0.1:9092",
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property", "-X", help="A client setting by librdkafka's name; may be repeated.",
        metavar="NAME=VALUE",
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """The options of every verb that speaks to a cluster."""

    bootstrap: BootstrapOption
    properties: PropertyOption = None

    def given(self) -> dict[str, Any]:
        """The address and the settings as given, without asking anyone."""
        return {"bootstrap.servers": self.bootstrap, **parse_pairs(self.properties, "-X")}

    def config(self) -> dict[str, Any]:
        """Settings of a confluent-kafka client, once a broker is known to answer."""
        given = self.given()
        check_reachable(self.bootstrap)
        # librdkafka would also write connection errors to standard error by itself.
        return {"log_level": 0, **given}

    def admin(self) -> AdminClient:
        """An admin client of the cluster."""
        config = self.config()
        with self.errors():
            from confluent_kafka.admin import AdminClient

            return AdminClient(config)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the client library's exceptions into errors of the command."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            yield
        except KafkaException as problem:
            error = problem.args[0]
            if not isinstance(error, KafkaError):
                raise CliError(str(error)) from None
            raise CliError(*explain(error, self.bootstrap)) from None
        except TimeoutError:
            raise self._no_answer() from None

    @contextmanager
    def settings(self) -> Iterator[dict[str, Any]]:
        """Settings for Headrace's own clients; errors inside become errors of the command."""
        from headrace.client.errors import UnknownSetting

        try:
            settings = self.config()
            with self.errors():
                yield settings
        except UnknownSetting as unknown:
            raise CliError(f"-X: {unknown}", exit_code=2) from None

    @contextmanager
    def cluster(self) -> Iterator[ClusterClient]:
        """The cluster over our own wire; errors inside become errors of the command."""
        # Imported late, since the messages of the whole protocol come with it.
        from headrace.client.wire.cluster import ClusterClient
        from headrace.client.wire.security import Security
        from headrace.protocol.errors import KafkaError
        from headrace.protocol.primitives import ProtocolError

        try:
            security = Security(parse_pairs(self.properties, "-X"))
        except ValueError as problem:
            raise CliError(str(problem), "change it with -X NAME=VALUE", 2) from None
        check_reachable(self.bootstrap)
        servers = split_servers(self.bootstrap)
        try:
            with ClusterClient(servers, security, REQUEST_TIMEOUT_SECONDS) as cluster:
                yield cluster
        except KafkaError as refusal:
            raise CliError(refusal.message, HINTS.get(refusal.code.name, "")) from None
        except TimeoutError:
            raise self._no_answer() from None
        except (OSError, ProtocolError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            hint = (
                "-X ssl.ca.location=FILE names the certificates to trust"
                if "CERTIFICATE_VERIFY_FAILED" in str(problem)
                else "does -X security.protocol fit the port?"
            )
            raise CliError(f"the connection to {self.bootstrap} broke: {reason}", hint) from None

    def _no_answer(self) -> CliError:
        return CliError(
            f"no answer from {self.bootstrap} in {REQUEST_TIMEOUT_SECONDS:g} s",
            "is the broker busy?",
        )


def explain(error: Any, bootstrap: str) -> tuple[str, str]:
    """A message and a hint for an error of the client library."""
    from confluent_kafka import KafkaError

    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    )
    if error.code() in unreachable:
        return f"no broker answers at {bootstrap}", "start one with: headrace up"
    hints = {
        KafkaError.UNKNOWN_TOPIC_OR_PART: "headrace topic list shows what there is",
        KafkaError._UNKNOWN_TOPIC: "headrace topic list shows what there is",
        KafkaError._UNKNOWN_PARTITION: "headrace topic describe TOPIC shows its partitions",
        KafkaError.TOPIC_ALREADY_EXISTS: "headrace topic alter changes a topic that exists",
        KafkaError.INVALID_REPLICATION_FACTOR: "a single node keeps one copy: "
        "--replication-factor 1",
        KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes",
        KafkaError._INVALID_ARG: "a setting given with -X may be unknown or out of its range",
    }
    return error.str() or error.name(), hints.get(error.code(), "")


def check_reachable(bootstrap: str) -> None:
    """CliError at once if no broker listens at the address."""
    # The library retries for half a minute before it reports a refused connection.
    problem = ""
    for server in split_servers(bootstrap):
        try:
            with socket.create_connection(server, CONNECT_TIMEOUT_SECONDS):
                return
        except OSError as error:
            problem = error.strerror or str(error)
    raise CliError(f"no broker answers at {bootstrap} ({problem})", "start one with: headrace up")


def split_servers(bootstrap: str) -> list[tuple[str, int]]:
    """The hosts and ports of HOST:PORT[,HOST:PORT]."""
    try:
        return parse_servers(bootstrap)
    except ValueError:
        raise CliError(
            f"--bootstrap {bootstrap!r} is not HOST:PORT[,HOST:PORT]",
            "for example --bootstrap 127.0.0.1:9092",
            2,
        ) from None
