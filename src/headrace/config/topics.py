"""Effective settings of a topic: its own overrides over the broker's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.config.kinds import Value
from headrace.config.settings import PRECEDENCE, Setting, Settings, Source
from headrace.config.topic_rows import TOPIC_ROWS


class Synonym(NamedTuple):
    """One place that a value may come from: the name it has there, its value, the place."""

    name: str
    value: Value
    source: Source


def topic_settings(broker: Settings, overrides: Mapping[str, object]) -> Settings:
    """Settings of a topic with these overrides on this broker; raises ConfigError if unfit."""
    layers: dict[Source, dict[str, Value]] = {Source.TOPIC: TOPIC_ROWS.parse(overrides)}
    for row in TOPIC_ROWS:
        for twin in row.twins:
            value = broker.value(twin.name)
            if value is not None:
                layers.setdefault(broker.source(twin.name), {})[row.name] = twin.convert(value)
                break
    return Settings(TOPIC_ROWS, layers)


def topic_synonyms(broker: Settings, topic: Settings, row: Setting) -> list[Synonym]:
    """Every place that gives this topic setting a value, the deciding one first."""
    own = topic.layer(Source.TOPIC)
    found = [Synonym(row.name, own[row.name], Source.TOPIC)] if row.name in own else []
    for source in PRECEDENCE:
        layer = broker.layer(source)
        for twin in row.twins:
            value = layer.get(twin.name)
            if value is not None:
                found.append(Synonym(twin.name, value, source))
    return found
