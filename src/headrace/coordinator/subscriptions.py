"""Reading consumers' subscriptions, as far as the coordinator must: which topics they name."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.protocol.codec import decoder
from headrace.protocol.logs.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.primitives import ProtocolError

CONSUMER_PROTOCOL_TYPE = "consumer"
VERSION_BYTES = 2

# Version 0 is a prefix of every later version, so later fields need not be known.
_decode_subscription = decoder(ConsumerProtocolSubscription, 0)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any of the members subscribes to; None if one of them cannot be read."""
    topics: set[str] = set()
    for data in set(subscriptions):  # most members of a group say the same
        if len(data) < VERSION_BYTES:
            return None
        try:
            subscription, _ = _decode_subscription(data, VERSION_BYTES, len(data))
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
