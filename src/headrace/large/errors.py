"""What goes wrong with large messages, each with what to do about it."""

from __future__ import annotations

from headrace.client.errors import RecordTooLarge
from headrace.errors import Unavailable, UndecodablePayload


class LargeRefused(RecordTooLarge):
    """A large message that its topic cannot take in this way."""


class LargeBroken(UndecodablePayload, ValueError):
    """A large message that is not what was sent; trying again never helps."""


class ClaimMissing(LargeBroken):
    """The body of a claim check is gone, or this process looks in the wrong place."""


class NoRoom(Unavailable):
    """Chunks cannot be kept until their message is whole: the disk is full, or not there."""


class ClaimsAway(Unavailable):
    """The place where bodies lie cannot be reached now."""
