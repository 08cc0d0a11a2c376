"""Settings that are given once for producers and consumers: which of them each kind takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.errors import UnknownSetting
from headrace.client.settings import Kind, read

# Some settings are only checked together with an address; this one is never contacted.
_ANY_ADDRESS = {"bootstrap.servers": "127.0.0.1:9092"}


def settings_of(given: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """The settings that a client of this kind takes; UnknownSetting if neither kind knows one."""
    other: Kind = "consumer" if kind == "producer" else "producer"
    return {name: value for name, value in given.items() if _takes(kind, name, value, other)}


def common_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that producers, consumers and admin clients all take."""
    return settings_of(settings_of(given, "consumer"), "producer")


def _takes(kind: Kind, name: str, value: Any, other: Kind) -> bool:
    try:
        read({**_ANY_ADDRESS, name: value}, kind)
    except UnknownSetting:
        read({**_ANY_ADDRESS, name: value}, other)
        return False
    return True
