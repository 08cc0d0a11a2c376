"""The error of an admin call that an operator can put right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.errors import HeadraceError


class AdminError(HeadraceError):
    """An admin call was refused, or names something that does not exist."""


def not_found(kind: str, name: str, known: Iterable[str], listing: str) -> AdminError:
    """The error of a name that does not exist; the hint is the nearest name, or how to list them.

    `kind` is a noun such as "topic", `listing` the command that shows all of them.
    """
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"{listing} shows what there is"
    return AdminError(f"there is no {kind} {name!r}", hint)
