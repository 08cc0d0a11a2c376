"""Errors of the dispatcher that a person reads: what is wrong, and what to do about it."""

from __future__ import annotations

from headrace.errors import HeadraceError


class DispatchError(HeadraceError):
    """Something that the dispatcher cannot do, with a hint."""


class SpoolFull(DispatchError):
    """The local queue is at its limit and was told to refuse; nothing was kept."""


class SpoolBroken(DispatchError):
    """The local queue cannot be read or written; what it had said to keep is still there."""


class JobFailed(DispatchError):
    """The worker raised an error; `kind` is its class, `text` what it said."""

    def __init__(self, id: str, kind: str, text: str) -> None:
        super().__init__(f"job {id} failed: {kind}: {text}")
        self.id = id
        self.kind = kind
        self.text = text


class TokensUnavailable(DispatchError):
    """The token store does not answer; whether the step was taken is not known: repeat it."""
