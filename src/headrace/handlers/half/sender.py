"""Writes the commands of half messages to `headrace.half`: prepare, commit and rollback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from headrace.client.admin.topics import (
    NeededTopic,
    admin_client,
    commands_topic,
    make_topics,
)
from headrace.client.delayed import TARGET_HEADER
from headrace.client.message import ID_HEADER
from headrace.ledger.half.commands import (
    CHECK_AFTER_HEADER,
    GROUP_HEADER,
    HALF_HEADER,
    HALF_TOPIC,
    check_topic,
)
from headrace.ledger.half.states import Event
from headrace.ledger.records import partition_of

if TYPE_CHECKING:
    from headrace.client.delivery import Sent
    from headrace.handlers.context import AppContext
    from headrace.ledger.half.commands import Prepared

# How long a prepare waits for an operator's rate limit on its target.
LIMIT_WAIT_SECONDS = 60.0
MAKE_SECONDS = 5.0

_log = logging.getLogger("headrace.half")


class HalfSender:
    """Sends commands to the half service; creates its topic if it is missing."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._making = threading.Lock()
        self._is_made = False

    def prepare(self, id: str, prepared: Prepared, check_after_ms: int | None) -> Sent:
        """Send a message to be held until its decision; TopicSwitchedOff if its target is."""
        self._context.switches.wait(prepared.target, 1, LIMIT_WAIT_SECONDS)
        headers = [
            *prepared.headers,
            (HALF_HEADER, Event.PREPARE.encode()),
            (ID_HEADER, id.encode()),
            (TARGET_HEADER, prepared.target.encode()),
            (GROUP_HEADER, prepared.group.encode()),
        ]
        if check_after_ms is not None:
            headers.append((CHECK_AFTER_HEADER, f"{check_after_ms}ms".encode()))
        if prepared.delay is not None:
            name, when = prepared.delay
            headers.append((name, when.encode()))
        return self._send(id, prepared.key, prepared.value, headers)

    def decide(self, id: str, *, is_commit: bool) -> Sent:
        """Send the decision on an id."""
        event = Event.COMMIT if is_commit else Event.ROLLBACK
        headers = [(HALF_HEADER, event.encode()), (ID_HEADER, id.encode())]
        return self._send(id, None, None, headers)

    def make_check_topics(self, groups: Iterable[str]) -> None:
        """Create the topics in which producer groups are asked; gives up soon without brokers.

        They must exist before a checker subscribes: a consumer notices new topics only minutes
        later.
        """
        needed = [check_topic(group) for group in groups]
        making = threading.Thread(target=self._try_to_make, args=(needed,), daemon=True)
        making.start()
        making.join(MAKE_SECONDS)

    def _try_to_make(self, needed: Sequence[NeededTopic]) -> None:
        try:
            self._make(needed)
        except KafkaException as problem:
            # The service creates them when it asks.
            _log.warning("cannot create the topics for checks: %s", problem.args[0])

    def _send(
        self,
        id: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Sent:
        producer = self._context.producer
        with self._making:
            if not self._is_made:
                self._make([commands_topic(HALF_TOPIC).unless_there])
                self._is_made = True
        # All commands of an id go to one partition, so that they keep their order.
        partition = partition_of(id, producer.partitions(HALF_TOPIC))
        return producer.send(HALF_TOPIC, value, key=key, headers=headers, partition=partition)

    def _make(self, needed: Sequence[NeededTopic]) -> None:
        settings = {"bootstrap.servers": self._context.bootstrap, **self._context.settings}
        make_topics(admin_client(settings), needed)
