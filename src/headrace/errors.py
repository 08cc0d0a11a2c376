"""Errors of the reliability layer that a person reads: what is wrong, and what to do about it."""

from __future__ import annotations


class HandlerError(Exception):
    """A handler, message or setting that cannot work, with a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class UndecodablePayload(HandlerError):
    """A payload that is not what the handler's annotation says; trying again never helps."""


class MissingId(HandlerError):
    """A message without the id that its handler asks for; trying again never helps."""


class Away(Exception):
    """The brokers cannot do it now, or another process has taken over; nothing was done."""
