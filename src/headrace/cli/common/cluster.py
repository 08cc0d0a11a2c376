"""Reaching a cluster without librdkafka, for the admin calls that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.cli.common.connection import (
    DEFAULT_PORT,
    REQUEST_TIMEOUT_SECONDS,
    check_reachable,
)
from headrace.cli.common.errors import CliError
from headrace.cli.common.pairs import parse_pairs, split_address

if TYPE_CHECKING:
    from headrace.client.wire.cluster import ClusterClient

# By the names of the error codes.
HINTS = {
    "UNSUPPORTED_VERSION": "the broker is too old for this",
    "UNKNOWN_TOPIC_OR_PARTITION": "headrace topic describe TOPIC shows its partitions",
    "SASL_AUTHENTICATION_FAILED": "check -X sasl.username and -X sasl.password",
    "UNSUPPORTED_SASL_MECHANISM": "give another one with -X sasl.mechanism=NAME",
    "GROUP_AUTHORIZATION_FAILED": "this user needs rights on the group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "this user needs rights on the id",
    "CLUSTER_AUTHORIZATION_FAILED": "this user needs rights on the cluster",
    "TOPIC_AUTHORIZATION_FAILED": "this user needs rights on the topic",
}


@contextmanager
def open_cluster(bootstrap: str, properties: list[str] | None) -> Iterator[ClusterClient]:
    """The cluster there; what goes wrong with it becomes an error of the command."""
    # Not before it is needed, since the messages of the whole protocol come with it.
    from headrace.client.wire.cluster import ClusterClient
    from headrace.client.wire.security import Security
    from headrace.protocol.errors import KafkaError
    from headrace.protocol.primitives import ProtocolError

    servers = [
        split_address(server, "--bootstrap", default_port=DEFAULT_PORT)
        for server in filter(None, bootstrap.split(","))
    ]
    try:
        security = Security(parse_pairs(properties, "-X"))
    except ValueError as problem:
        raise CliError(str(problem), "give another one with -X NAME=VALUE", 2) from None
    check_reachable(bootstrap)
    try:
        with ClusterClient(servers, security, REQUEST_TIMEOUT_SECONDS) as cluster:
            yield cluster
    except KafkaError as refusal:
        raise CliError(refusal.message, HINTS.get(refusal.code.name, "")) from None
    except TimeoutError:
        raise CliError(
            f"no answer from {bootstrap} in {REQUEST_TIMEOUT_SECONDS:g} s", "is the broker busy?"
        ) from None
    except (OSError, ProtocolError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        hint = (
            "-X ssl.ca.location=FILE says whom to trust"
            if "CERTIFICATE_VERIFY_FAILED" in str(problem)
            else "does -X security.protocol fit the port?"
        )
        raise CliError(f"the talk with {bootstrap} broke off: {reason}", hint) from None
