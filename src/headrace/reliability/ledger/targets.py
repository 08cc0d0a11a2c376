"""Which topics take records: asked once in a while, so that a bad one holds nobody up."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any

from confluent_kafka import KafkaException

from headrace.client.making_topics import NeededTopic, make_topics
from headrace.reliability.ledger.book import Wait
from headrace.reliability.ledger.machine import Outgoing

# A topic that was there is taken to be there for so long; a failure to send asks again.
GOOD_SECONDS = 300.0
# A topic that is missing is asked for so often and for so long: somebody may be making it.
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 10.0
BAD_SECONDS = 5.0
METADATA_SECONDS = 5.0

_log = logging.getLogger("headrace.ledger")


class Targets:
    """Knows topics by their metadata; a broker that makes topics on demand makes them so."""

    def __init__(self, admin: Any, ours: Collection[str]) -> None:
        self._admin = admin
        self._ours = frozenset(ours)
        self._good_until: dict[str, float] = {}
        self._bad: dict[str, tuple[float, str]] = {}
        self._missing_since: dict[str, float] = {}
        self._look_at: dict[str, float] = {}

    def __call__(self, outgoing: Outgoing) -> str | None:
        """None if its topic takes it, else why it never does; Wait if that is not known yet."""
        topic = outgoing.topic
        if topic in self._ours:
            return None
        now = time.monotonic()
        if now < self._good_until.get(topic, 0.0):
            return None
        until, reason = self._bad.get(topic, (0.0, ""))
        if now < until:
            return reason
        if now < self._look_at.get(topic, 0.0):
            raise Wait
        found = self._ask(topic, outgoing.make)
        if found is None:
            self._good_until[topic] = now + GOOD_SECONDS
            for known in (self._bad, self._missing_since, self._look_at):
                known.pop(topic, None)
            return None
        self._look_at[topic] = now + LOOK_SECONDS
        if now - self._missing_since.setdefault(topic, now) < PATIENCE_SECONDS:
            raise Wait
        self._missing_since.pop(topic)
        self._bad[topic] = (now + BAD_SECONDS, found)
        return found

    def doubt(self, topic: str) -> None:
        """Ask again: sending to it has failed."""
        self._good_until.pop(topic, None)

    def _ask(self, topic: str, make: bool) -> str | None:
        try:
            if make:
                make_topics(self._admin, [NeededTopic(topic, 1)])
            error = self._admin.list_topics(topic, timeout=METADATA_SECONDS).topics[topic].error
        except KafkaException as problem:
            _log.warning("nobody says whether there is a topic %s: %s", topic, problem.args[0])
            raise Wait from None
        return None if error is None else str(error.str())
