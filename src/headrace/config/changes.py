"""Changes to settings of a resource: set, delete, append to a list, subtract from a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.config.kinds import Kind
from headrace.config.settings import ConfigError, Settings


class ResourceType(IntEnum):
    """The kind of a resource with settings; the number is the one on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """What to do with a value; the number is the one IncrementalAlterConfigs puts on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one setting."""

    name: str
    operation: Operation
    value: str | None = None


def apply_changes(
    own: Mapping[str, str], effective: Settings, changes: Iterable[Change]
) -> dict[str, str]:
    """Return a resource's own settings after the changes; raises ConfigError for an invalid change.

    To append to or subtract from a list that the resource does not set, its effective value is
    taken. Values are not checked here, because a rule may span several of them.
    """
    result = dict(own)
    for name, operation, value in changes:
        if operation is Operation.DELETE:
            result.pop(name, None)
        elif value is None:
            raise ConfigError(name, "a null value is not supported")
        elif operation is Operation.SET:
            result[name] = value
        else:
            row = effective.rows.row(name)
            if row.kind is not Kind.LIST:
                verb = operation.name.lower()
                raise ConfigError(name, f"cannot {verb}: it is a {row.kind.name}, not a LIST")
            parts = _parts(result[name]) if name in result else effective.list(name)
            given = _parts(value)
            if operation is Operation.APPEND:
                parts += [part for part in dict.fromkeys(given) if part not in parts]
            else:
                parts = [part for part in parts if part not in given]
            result[name] = ",".join(parts)
    return result


def _parts(text: str) -> list[str]:
    return [part for part in (raw.strip() for raw in text.split(",")) if part]
