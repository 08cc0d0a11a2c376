"""Arguments of the forms NAME=VALUE and HOST:PORT."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.cli.common.errors import CliError

PORT_MAX = 65_535


def parse_pairs(pairs: Iterable[str] | None, option: str) -> dict[str, str]:
    """Split NAME=VALUE arguments; of a name given twice the last value counts."""
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CliError(f"{option} {pair!r} is not NAME=VALUE", exit_code=2)
        parsed[name.strip()] = value
    return parsed


def split_address(text: str, option: str, default_port: int | None = None) -> tuple[str, int]:
    """Split HOST:PORT; brackets around an IPv6 host are taken off."""
    host, colon, port = text.rpartition(":")
    if not colon and default_port is not None:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise CliError(
            f"{option} {text!r} is not HOST:PORT", f"for example {option} 127.0.0.1:9092", 2
        )
    return host, int(port)
