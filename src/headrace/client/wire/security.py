"""How a connection is secured, by the names that librdkafka gives the settings."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.wire.errors import refused
from headrace.client.wire.sasl import MECHANISMS
from headrace.protocol.api.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headrace.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.client.wire.connection import BrokerConnection

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@dataclass(frozen=True, slots=True)
class Security:
    """Plain text or TLS, and the SASL user; made from a client's settings."""

    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(
                f"security.protocol {self.protocol!r} is unknown: use {', '.join(PROTOCOLS)}"
            )
        if self._has_user and self.mechanism not in MECHANISMS:
            raise ValueError(
                f"sasl.mechanism {self.mechanism!r} cannot be used here: use "
                f"{', '.join(MECHANISMS)}"
            )

    @property
    def protocol(self) -> str:
        """One of PROTOCOLS."""
        return self.settings.get("security.protocol", "plaintext").lower()

    @property
    def mechanism(self) -> str:
        """The SASL mechanism; the setting has two names."""
        given = self.settings.get("sasl.mechanism") or self.settings.get("sasl.mechanisms", "")
        return given.upper()

    @property
    def _has_user(self) -> bool:
        return self.protocol.startswith("sasl")

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket, in TLS if the settings ask for it; the certificate is checked by default."""
        if not self.protocol.endswith("ssl"):
            return plain
        return self._tls().wrap_socket(plain, server_hostname=host)

    def authenticate(self, wire: BrokerConnection) -> None:
        """Authenticate the SASL user, if there is one; SASL_AUTHENTICATION_FAILED if refused."""
        if not self._has_user:
            return
        shaken = wire.ask(SaslHandshakeRequest(mechanism=self.mechanism), SaslHandshakeResponse)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise refused(
                shaken.error_code,
                f"the broker does not accept {self.mechanism}; it accepts {offered}",
            )
        exchange = MECHANISMS[self.mechanism](
            self.settings.get("sasl.username", ""), self.settings.get("sasl.password", "")
        )
        message = next(exchange)
        while True:
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if answer.error_code:
                raise refused(answer.error_code, answer.error_message)
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                return
            except ValueError as problem:
                raise KafkaError(
                    ErrorCode.SASL_AUTHENTICATION_FAILED,
                    f"the broker does not speak {self.mechanism}: {problem}",
                ) from None

    def _tls(self) -> ssl.SSLContext:
        given = self.settings.get
        authority = given("ssl.ca.location")
        context = ssl.create_default_context(
            cafile=None if authority in (None, "probe") else authority
        )
        if given("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if given("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = given("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(
                certificate, given("ssl.key.location"), given("ssl.key.password")
            )
        return context
