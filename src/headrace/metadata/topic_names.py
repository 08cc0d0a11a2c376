"""Topic names: which are valid, which are internal, and which are too much alike."""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_name(name: str) -> None:
    """Raise ValueError with the reason unless this is a valid topic name."""
    if not name:
        raise ValueError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise ValueError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > NAME_LENGTH_MAX:
        raise ValueError(
            f"Topic name is invalid: it has {len(name)} characters; the limit is {NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        raise ValueError(
            f"Topic name is invalid: '{name}' has a character other than ASCII letters and "
            "digits, '.', '_' and '-'"
        )


def collision_key(name: str) -> str:
    """A key that is equal for names that differ only in `.` and `_`, as in metrics."""
    return name.replace(".", "_")
