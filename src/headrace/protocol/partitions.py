"""The name of a partition: its topic and its number."""

from __future__ import annotations

from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
