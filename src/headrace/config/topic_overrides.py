"""Effective settings of a topic: its own overrides over the broker's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.config.kinds import Value
from headrace.config.settings import PRECEDENCE, Setting, Settings, Source
from headrace.config.topic_rows import TOPIC_ROWS


class Synonym(NamedTuple):
    """A source of a value: the name it has there, the value, and the source."""

    name: str
    value: Value
    source: Source


def topic_settings(broker: Settings, overrides: Mapping[str, object]) -> Settings:
    """Settings of a topic with these overrides; raises ConfigError if one is invalid."""
    layers: dict[Source, dict[str, Value]] = {Source.TOPIC: TOPIC_ROWS.parse(overrides)}
    for row in TOPIC_ROWS:
        for fallback in row.fallbacks:
            value = broker.value(fallback.name)
            if value is not None:
                layers.setdefault(broker.source(fallback.name), {})[row.name] = fallback.convert(
                    value
                )
                break
    return Settings(TOPIC_ROWS, layers)


def topic_synonyms(broker: Settings, topic: Settings, row: Setting) -> list[Synonym]:
    """Every source of this topic setting, the deciding one first."""
    own = topic.layer(Source.TOPIC)
    found = [Synonym(row.name, own[row.name], Source.TOPIC)] if row.name in own else []
    for source in PRECEDENCE:
        layer = broker.layer(source)
        for fallback in row.fallbacks:
            value = layer.get(fallback.name)
            if value is not None:
                found.append(Synonym(fallback.name, value, source))
    return found
