"""The kinds of things that have settings."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """What a config request is about; the number is the one on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
