"""Every request and response, one module per API, named as the API is in `ApiKey`."""

from __future__ import annotations

from importlib import import_module

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.schema import Message


def _messages(suffix: str) -> dict[int, type[Message]]:
    found: dict[int, type[Message]] = {}
    for key in ApiKey:
        module = import_module(f"{__name__}.{key.name.lower()}")
        found[int(key)] = getattr(module, key.name.title().replace("_", "") + suffix)
    return found


REQUESTS = _messages("Request")
RESPONSES = _messages("Response")
