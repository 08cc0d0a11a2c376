"""Which topics take records: asked once in a while, so that a bad one holds nobody up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException

from headrace.client.admin.topics import NeededTopic, make_topics
from headrace.ledger.book import Wait
from headrace.ledger.machine import Outgoing
from headrace.ledger.topics import Names

# A topic that was there is taken to be there for so long; a failure to send asks again.
GOOD_SECONDS = 300.0
# A topic that is missing is asked for so often and for so long: somebody may be making it.
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 10.0
BAD_SECONDS = 5.0
# A topic that said itself that it takes nothing from us is not tried again for so long.
REFUSED_SECONDS = 30.0
# How long a topic rests that took nothing, growing while it goes on.
REST_SECONDS = 5.0
REST_SECONDS_MAX = 60.0
METADATA_SECONDS = 5.0
# When no broker has answered, nobody is asked about any topic for so long.
SILENT_SECONDS = 5.0

_log = logging.getLogger("headrace.ledger")


class Targets:
    """Knows topics by their metadata; a broker that makes topics on demand makes them so."""

    def __init__(
        self, admin: Any, names: Names, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        # These are there, or the service would not run.
        self._ours = frozenset((names.input, names.state, names.dead))
        self._clock = clock
        self._good_until: dict[str, float] = {}
        self._bad: dict[str, tuple[float, str]] = {}
        self._missing_since: dict[str, float] = {}
        self._look_at: dict[str, float] = {}
        self._rest_s: dict[str, float] = {}
        self._make: dict[str, NeededTopic] = {}
        self._silent_until = 0.0

    def __call__(self, outgoing: Outgoing) -> str | None:
        """None if its topic takes it, else why it never does; Wait if it does not now."""
        topic = outgoing.topic
        if self._clock() < self._good_until.get(topic, 0.0):
            return None
        if outgoing.make is not None:
            self._make[topic] = outgoing.make
        return self._look(topic)

    def must_wait(self, topic: str) -> bool:
        """Whether nothing can be said of a topic yet."""
        try:
            self._look(topic)
        except Wait:
            return True
        return False

    def rest(self, topic: str) -> None:
        """Leave it alone for a while: it took nothing, and that may pass."""
        now = self._clock()
        if now < self._look_at.get(topic, 0.0):
            return
        self._good_until.pop(topic, None)
        rest_s = self._rest_s.get(topic, REST_SECONDS)
        self._look_at[topic] = now + rest_s
        self._rest_s[topic] = min(2 * rest_s, REST_SECONDS_MAX)

    def refuse(self, topic: str, reason: str) -> None:
        """It takes nothing from us."""
        self._good_until.pop(topic, None)
        self._bad[topic] = (self._clock() + REFUSED_SECONDS, reason)

    def worked(self, topics: Iterable[str]) -> None:
        """They took what was sent to them."""
        if self._rest_s:
            for topic in topics:
                self._rest_s.pop(topic, None)

    def _look(self, topic: str) -> str | None:
        now = self._clock()
        if now < self._good_until.get(topic, 0.0):
            return None
        until, reason = self._bad.get(topic, (0.0, ""))
        if now < until:
            return reason
        if now < max(self._look_at.get(topic, 0.0), self._silent_until):
            raise Wait(topic)
        if topic in self._ours:
            return None
        found = self._ask(topic)
        if found is None:
            self._good_until[topic] = now + GOOD_SECONDS
            for known in (self._bad, self._missing_since, self._look_at):
                known.pop(topic, None)
            return None
        self._look_at[topic] = now + LOOK_SECONDS
        if now - self._missing_since.setdefault(topic, now) < PATIENCE_SECONDS:
            raise Wait(topic)
        self._missing_since.pop(topic)
        self._bad[topic] = (now + BAD_SECONDS, found)
        return found

    def _ask(self, topic: str) -> str | None:
        try:
            needed = self._make.pop(topic, None)
            # Not asked for by name: that would make it, with the broker's own settings.
            if needed and topic not in self._admin.list_topics(timeout=METADATA_SECONDS).topics:
                make_topics(self._admin, [needed])
            found = self._admin.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
        except KafkaException as problem:
            _log.warning("nobody says whether there is a topic %s: %s", topic, problem.args[0])
            self._silent_until = self._clock() + SILENT_SECONDS
            raise Wait(topic) from None
        if found.error is not None:
            return str(found.error.str())
        if any(partition.leader < 0 for partition in found.partitions.values()):
            # Its broker will come back; what is sent there now would hold the others.
            self._look_at[topic] = self._clock() + REST_SECONDS
            raise Wait(topic)
        return None
