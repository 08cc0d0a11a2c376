"""Many values as one parameter of driver-level SQL, so that the statement is always the same."""

from __future__ import annotations

import json
from collections.abc import Sequence

_ONE_OF = {"sqlite": "IN (SELECT value FROM json_each(?))", "postgresql": "= ANY(%s)"}
_NONE_OF = {"sqlite": "NOT IN (SELECT value FROM json_each(?))", "postgresql": "<> ALL(%s)"}


def one_of(kind: str) -> str:
    """The condition that a column is one of `array(kind, values)`."""
    return _ONE_OF[kind]


def none_of(kind: str) -> str:
    """The condition that a column is none of `array(kind, values)`."""
    return _NONE_OF[kind]


def array(kind: str, values: Sequence[int] | Sequence[str]) -> object:
    """The parameter of `one_of` and `none_of`."""
    return list(values) if kind == "postgresql" else json.dumps(list(values))
