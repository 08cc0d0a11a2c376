"""The log configuration that follows from a topic's settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from headrace.config import Settings, topic_settings
from headrace.storage.log.config import LogConfig

# The log names each setting as the topic does, with `_` for `.`.
_FIELDS = {field.name: field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}


def log_config(broker: Settings, overrides: Mapping[str, str]) -> LogConfig:
    """Configuration of a topic's logs: its overrides over the broker's settings.

    Raises ConfigError for an unknown or invalid override.
    """
    topic = topic_settings(broker, overrides)
    values: dict[str, Any] = {field: topic.value(name) for field, name in _FIELDS.items()}
    values["cleanup_policy"] = frozenset(topic.list("cleanup.policy"))
    return LogConfig(**values)
