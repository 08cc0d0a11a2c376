"""The errors of large messages."""

from __future__ import annotations

from headrace.client.errors import RecordTooLarge
from headrace.errors import Unavailable, UndecodablePayload


class LargeRefused(RecordTooLarge):
    """A large message that its topic cannot take in chunks."""


class LargeBroken(UndecodablePayload, ValueError):
    """A large message that is not what was sent; a retry would fail the same way."""


class BodyMissing(LargeBroken):
    """The body of a claim check is gone, or in another body store."""


class NoDiskSpace(Unavailable):
    """Chunks cannot be kept until their message is whole: the disk is full or missing."""


class BodyStoreUnavailable(Unavailable):
    """The body store cannot be reached now."""
