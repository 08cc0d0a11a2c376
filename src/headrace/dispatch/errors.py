"""The dispatcher's errors: what is wrong, and what to do about it."""

from __future__ import annotations

from headrace.errors import HeadraceError


class DispatchError(HeadraceError):
    """Something that the dispatcher cannot do, with a hint."""


class SpoolFull(DispatchError):
    """The spool is at its limit and full="refuse" is set; no job was stored."""


class SpoolBroken(DispatchError):
    """The spool cannot be read or written; jobs that were acknowledged are still in it."""


class JobFailed(DispatchError):
    """The worker raised an error; `kind` is its class, `text` its message."""

    def __init__(self, id: str, kind: str, text: str) -> None:
        super().__init__(f"job {id} failed: {kind}: {text}")
        self.id = id
        self.kind = kind
        self.text = text


class TokensUnavailable(DispatchError):
    """The token store does not answer; whether the step was taken is unknown: repeat it."""
