"""The errors that people read: what is wrong, and what to do about it."""

from __future__ import annotations


def with_hint(message: str, hint: str) -> str:
    """The text of an error: one line, with its hint in brackets."""
    return f"{message} (hint: {hint})" if hint else message


class HeadraceError(Exception):
    """Something a person can put right: `message` says what is wrong, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return with_hint(self.message, self.hint)


class HandlerError(HeadraceError):
    """A handler, message or setting that cannot work."""


class UndecodablePayload(HandlerError):
    """A payload does not match the handler's annotation; a retry would fail the same way."""


class MissingId(HandlerError):
    """A message lacks the id that its handler needs; a retry would fail the same way."""


class Unavailable(HeadraceError):
    """The store or the brokers cannot do it now, or another process has taken over.

    Nothing was done, and no message is at fault: the same call may be made again later.
    """
