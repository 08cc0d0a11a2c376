"""Listener addresses: `NAME://host:port` lists become endpoints."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from headrace.config.settings import ConfigError, Settings

_ADDRESS = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d+)",
    re.ASCII,
)
_PORT_MAX = 65_535
# There is no TLS or SASL yet.
_PROTOCOLS = ("PLAINTEXT",)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that the broker listens on or advertises; an empty host is every interface."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def listeners(settings: Settings) -> list[Endpoint]:
    """The endpoints that the broker binds; raises ConfigError if `listeners` is invalid."""
    return _endpoints(settings, "listeners")


def advertised_listeners(settings: Settings) -> list[Endpoint]:
    """The endpoints for clients: `advertised.listeners`, or `listeners` if that is unset."""
    given = settings.list("advertised.listeners")
    endpoints = _endpoints(settings, "advertised.listeners" if given else "listeners")
    bound = {endpoint.name for endpoint in listeners(settings)}
    for endpoint in endpoints:
        if endpoint.name not in bound:
            reason = f"{endpoint.name} is not among the listeners ({', '.join(sorted(bound))})"
            raise ConfigError("advertised.listeners", reason)
        if endpoint.host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                "advertised.listeners",
                f"clients cannot connect to {endpoint}; give an address that they can reach, "
                f"such as {endpoint.name}://this-machine:{endpoint.port}",
            )
    return endpoints


def check_listeners(settings: Settings) -> None:
    """Raise ConfigError if the listener settings do not fit together."""
    if len(listeners(settings)) > 1:
        raise ConfigError("listeners", "only one listener is supported today")
    if not settings.bool("headrace.allow.insecure.listen"):
        _require_loopback(listeners(settings)[0])
    advertised_listeners(settings)


def _require_loopback(endpoint: Endpoint) -> None:
    """Refuse to listen beyond this machine while there is no authentication."""
    host = endpoint.host
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ConfigError(
            "listeners",
            f"{host or 'every interface'} is not loopback and there is no authentication; listen "
            "on 127.0.0.1, or use --set headrace.allow.insecure.listen=true on a trusted network",
        )


def _endpoints(settings: Settings, setting: str) -> list[Endpoint]:
    protocols = _protocol_map(settings)
    endpoints: list[Endpoint] = []
    for text in settings.list(setting):
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > _PORT_MAX:
            raise ConfigError(setting, f"{text!r} is not of the form NAME://host:port")
        name = match["name"].upper()
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(setting, f"{name} has no protocol in listener.security.protocol.map")
        if any(endpoint.name == name for endpoint in endpoints):
            raise ConfigError(setting, f"listener {name} is given twice")
        endpoints.append(
            Endpoint(name, protocol, match["six"] or match["host"] or "", int(match["port"]))
        )
    if not endpoints:
        raise ConfigError(setting, "at least one listener is needed")
    return endpoints


def _protocol_map(settings: Settings) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for pair in settings.list("listener.security.protocol.map"):
        name, _, protocol = pair.partition(":")
        if protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map",
                f"{pair!r}: the protocol must be {' or '.join(_PROTOCOLS)}",
            )
        protocols[name.upper()] = protocol.upper()
    return protocols
