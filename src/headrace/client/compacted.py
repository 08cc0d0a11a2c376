"""A compacted topic read from its beginning and then live, without a group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client.settings import ClientSettings, translate, with_bootstrap
from headrace.closing import Closing

BATCH_RECORDS = 1000
POLL_SECONDS = 0.1
# A topic that is created or grows later is noticed within this time.
CHECK_SECONDS = 1.0
METADATA_SECONDS = 3.0

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

OnRecord = Callable[[bytes, bytes | None], None]

_log = logging.getLogger("headrace.client")


class CompactedReader(Closing):
    """Calls `on_record(key, value)` for every record of a topic, from a thread of its own.

    `caught_up` is set when all records that existed at the start have been passed on; a topic that
    does not exist counts as empty, and is read as soon as it does. A value of None is a deletion.
    What `on_record` raises is logged. Records without a key are skipped. `value_of` finds the value
    of a record that is stored elsewhere.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings,
        topic: str,
        on_record: OnRecord,
        settings: ClientSettings | None = None,
        *,
        value_of: Callable[[Any], bytes | None] | None = None,
    ) -> None:
        self.topic = topic
        self._value_of = value_of
        self.caught_up = threading.Event()
        self._on_record = on_record
        self._consumer = Consumer(
            {
                **translate({**with_bootstrap(bootstrap), **(settings or {})}, "consumer"),
                # Nothing is joined or committed, but the library needs a group id.
                "group.id": "headrace-compacted-reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
            }
        )
        self._assigned: set[int] = set()
        self._behind: set[int] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading; `on_record` is not called after this returns."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            check_at_s = 0.0
            while not self._closing.is_set():
                if time.monotonic() >= check_at_s:
                    self._find_partitions()
                    check_at_s = time.monotonic() + CHECK_SECONDS
                self._read()
        finally:
            self._consumer.close()

    def _read(self) -> None:
        """Pass on what has arrived; waits for the first record."""
        if not self._assigned:
            self._closing.wait(POLL_SECONDS)
            return
        first = self._consumer.poll(POLL_SECONDS)
        if first is not None:
            self._take(first)
            for message in self._consumer.consume(BATCH_RECORDS, 0):
                self._take(message)

    def _find_partitions(self) -> None:
        """Assign new partitions; the first answer shows how much there is to catch up with."""
        try:
            known = self._consumer.list_topics(self.topic, timeout=METADATA_SECONDS)
            found = known.topics[self.topic]
            if found.error is not None and found.error.code() not in _MISSING:
                raise KafkaException(found.error)
        except KafkaException as problem:
            _log.warning("%s cannot be read now: %s", self.topic, problem.args[0])
            return
        new = set(found.partitions) - self._assigned
        if new:
            starts = [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in new]
            self._consumer.incremental_assign(starts)
            self._assigned |= new
            if not self.caught_up.is_set():
                self._behind |= new
        if not self._behind:
            self.caught_up.set()

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            key = message.key()
            if key is not None:
                try:
                    value_of = self._value_of
                    value = message.value() if value_of is None else value_of(message)
                    self._on_record(key, value)
                except Exception:
                    _log.exception(
                        "on_record failed for %s/%s/%s",
                        self.topic,
                        message.partition(),
                        message.offset(),
                    )
        elif error.code() == KafkaError._PARTITION_EOF:
            self._behind.discard(message.partition())
            if not self._behind:
                self.caught_up.set()
        else:
            _log.warning("reading %s: %s", self.topic, error)
