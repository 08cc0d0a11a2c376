"""Which topics accept records, and which entries of an aborted transaction are to blame."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException

from headrace.client.admin.topics import NeededTopic, make_topics
from headrace.client.held_topics import HeldTopics
from headrace.client.produce_errors import is_passing, is_record_fault, is_topic_fault
from headrace.ledger.clients import AbortedTransaction
from headrace.ledger.machine import OutgoingRecord
from headrace.ledger.state_partition import PlannedTransaction, StatePartition, TargetNotReady
from headrace.ledger.topics import ServiceTopics

# How long a topic that existed is assumed to exist; a failed send asks the brokers again.
EXISTS_SECONDS = 300.0
# A missing topic is asked for this often and for this long: somebody may be creating it.
RECHECK_SECONDS = 0.25
PATIENCE_SECONDS = 10.0
MISSING_SECONDS = 5.0
# How long a topic that refuses every record is not tried again.
REFUSED_SECONDS = 30.0
# The pause of a topic that accepts nothing, which doubles while that goes on.
PAUSE_SECONDS = 5.0
PAUSE_SECONDS_MAX = 60.0
METADATA_SECONDS = 5.0
# How long no topic is asked for after a metadata request has failed.
NO_BROKER_SECONDS = 5.0

_log = logging.getLogger("headrace.ledger")


class TargetTopics:
    """Checks target topics by their metadata, so that a bad one holds up no other.

    A broker that creates topics on demand creates them on this check.
    """

    def __init__(
        self, admin: Any, topics: ServiceTopics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        # The service could not run without these.
        self._own = frozenset((topics.input, topics.state, topics.dead_letters))
        self._clock = clock
        self._exists_until: dict[str, float] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._missing_since: dict[str, float] = {}
        # Topics whose next check has to wait.
        self._held = HeldTopics(int(PAUSE_SECONDS * 1000), int(PAUSE_SECONDS_MAX * 1000))
        self._needed: dict[str, NeededTopic] = {}
        self._no_broker_until = 0.0

    def __call__(self, outgoing: OutgoingRecord) -> str | None:
        """None if its topic accepts it, else why it never will; TargetNotReady if it may later."""
        topic = outgoing.topic
        if self._clock() < self._exists_until.get(topic, 0.0):
            return None
        if outgoing.needed_topic is not None:
            self._needed[topic] = outgoing.needed_topic
        return self._check(topic)

    def must_wait(self, topic: str) -> bool:
        """Whether a topic is still not ready."""
        try:
            self._check(topic)
        except TargetNotReady:
            return True
        return False

    def pause(self, topic: str) -> None:
        """Send nothing to a topic for a while: it accepted nothing, but may again."""
        now_ms = self._now_ms()
        if not self._held.is_held(topic, now_ms):
            self._exists_until.pop(topic, None)
            self._held.hold(topic, now_ms)

    def refuse(self, topic: str, reason: str) -> None:
        """Remember that a topic refuses every record."""
        self._exists_until.pop(topic, None)
        self._refused[topic] = (self._clock() + REFUSED_SECONDS, reason)

    def accepted(self, topics: Iterable[str]) -> None:
        """Remember that these topics accepted what was sent to them."""
        self._held.reset_pauses(topics)

    def _check(self, topic: str) -> str | None:
        now = self._clock()
        if now < self._exists_until.get(topic, 0.0):
            return None
        until, reason = self._refused.get(topic, (0.0, ""))
        if now < until:
            return reason
        if self._held.is_held(topic, self._now_ms()) or now < self._no_broker_until:
            raise TargetNotReady(topic)
        if topic in self._own:
            return None
        problem = self._ask_brokers(topic)
        if problem is None:
            self._exists_until[topic] = now + EXISTS_SECONDS
            self._refused.pop(topic, None)
            self._missing_since.pop(topic, None)
            return None
        self._held.hold(topic, self._now_ms(), int(RECHECK_SECONDS * 1000))
        if now - self._missing_since.setdefault(topic, now) < PATIENCE_SECONDS:
            raise TargetNotReady(topic)
        self._missing_since.pop(topic)
        self._refused[topic] = (now + MISSING_SECONDS, problem)
        return problem

    def _ask_brokers(self, topic: str) -> str | None:
        try:
            needed = self._needed.pop(topic, None)
            # List all topics: asking for one by name would create it with the broker's defaults.
            if needed and topic not in self._admin.list_topics(timeout=METADATA_SECONDS).topics:
                make_topics(self._admin, [needed])
            found = self._admin.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
        except KafkaException as problem:
            _log.warning("cannot find out whether topic %s exists: %s", topic, problem.args[0])
            self._no_broker_until = self._clock() + NO_BROKER_SECONDS
            raise TargetNotReady(topic) from None
        if found.error is not None:
            return str(found.error.str())
        if any(partition.leader < 0 for partition in found.partitions.values()):
            # A leader will be back; until then a record for it would hold up its transaction.
            self._held.hold(topic, self._now_ms(), int(PAUSE_SECONDS * 1000))
            raise TargetNotReady(topic)
        return None

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def handle_abort(
    state: StatePartition,
    targets: TargetTopics,
    plan: PlannedTransaction,
    aborted: AbortedTransaction,
    topics: ServiceTopics,
) -> bool:
    """Make the entries of an aborted transaction due again, apart from those to blame.

    Returns whether the whole partition should pause.
    """
    suspects: dict[int, str] = {}
    is_target_known = False
    for topic, tag, error in aborted.records:
        if topic == topics.state:
            continue
        if topic != topics.dead_letters and is_record_fault(error):
            suspects[tag] = error.str()
        else:
            is_target_known = True
            if is_topic_fault(error):
                targets.refuse(topic, error.str())
            else:
                targets.pause(topic)
    if suspects:
        state.isolate(plan, suspects)
        return False
    if is_target_known:
        state.put_back(plan)
        return False
    if not is_passing(aborted.cause):
        return not _search(state, targets, plan, aborted)
    state.put_back(plan)
    return True


def _search(
    state: StatePartition,
    targets: TargetTopics,
    plan: PlannedTransaction,
    aborted: AbortedTransaction,
) -> bool:
    """Search for the entry to blame when no record was named; False if no suspect is left."""
    reason = aborted.cause.str()
    sent_to = {outgoing.topic for outgoing in plan.sends}
    if is_topic_fault(aborted.cause) and len(sent_to) == 1:
        targets.refuse(sent_to.pop(), reason)
        state.put_back(plan)
        return True
    has_suspects = len(plan.items) > 1 or (sent_to and not plan.dead_letters)
    if not has_suspects:
        state.put_back(plan)
        return False
    state.isolate(plan, dict.fromkeys(range(len(plan.items)), reason))
    return True
