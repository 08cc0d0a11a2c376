"""Reading records to standard output, as `headrace consume` does."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import quiet_pipe
from headrace.cli.records.formats import Formatter
from headrace.cli.records.positions import Positions, resolve
from headrace.client.admin.errors import not_found
from headrace.protocol.partitions import TopicPartition

METADATA_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.1
BATCH_RECORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What `headrace consume` was asked for."""

    topics: tuple[str, ...]
    formatter: Formatter
    group: str | None = None
    partitions: tuple[int, ...] = ()
    positions: Positions = field(default_factory=Positions)
    count: int | None = None
    exit_at_end: bool = False


class Consumption:
    """One run of the verb: which partitions are read, which are finished, how many are printed."""

    def __init__(self, options: ConsumeOptions, consumer: Any, out: BinaryIO) -> None:
        self._options = options
        self._consumer = consumer
        self._out = out
        self._open: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._printed = 0
        self._done = options.count == 0

    def interrupt(self, *_: object) -> NoReturn:
        """Called by a signal: stop now, or at the next poll if the library drops the exception."""
        self._done = True
        raise KeyboardInterrupt

    def begin(self) -> None:
        """Join the group, or take the partitions and positions that were asked for."""
        if self._options.group is not None:
            self._consumer.subscribe(
                list(self._options.topics), on_assign=self._assigned, on_revoke=self._revoked
            )
            return
        from confluent_kafka import TopicPartition as LibraryPartition

        partitions = self._find_partitions()
        starts, self._ends = resolve(self._consumer, partitions, self._options.positions)
        self._open = {key for key in partitions if starts[key] < self._ends.get(key, 1 << 63)}
        self._consumer.assign([LibraryPartition(*key, starts[key]) for key in self._open])
        self._done = self._done or not self._open

    def run(self) -> None:
        """Print until the end, the count, Ctrl-C or a reader that has gone."""
        while not self._done and not reader_is_gone(self._out):
            first = self._consumer.poll(POLL_SECONDS)
            if first is None:
                continue
            self._take(first)
            # What has arrived meanwhile goes out with it: one write and one flush for many.
            for message in self._consumer.consume(BATCH_RECORDS, 0):
                self._take(message)
            self._out.flush()

    def _take(self, message: Any) -> None:
        if self._done:
            return
        key = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            self._on_event(key, message, error)
            return
        end = self._ends.get(key)
        if end is None or message.offset() < end:
            self._out.write(self._options.formatter(message))
            self._printed += 1
            if self._options.group is not None:
                # Stored after it was printed, so that a group reads it again if this run dies.
                self._consumer.store_offsets(message)
        if end is not None and message.offset() + 1 >= end:
            self._finish(key)
        if self._options.count is not None and self._printed >= self._options.count:
            self._done = True

    def _on_event(self, key: TopicPartition, message: Any, error: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if error.code() == KafkaError._PARTITION_EOF:
            end = self._ends.get(key)
            if self._options.exit_at_end or (end is not None and message.offset() >= end):
                self._finish(key)
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)

    def _finish(self, key: TopicPartition) -> None:
        self._open.discard(key)
        self._done = self._done or not self._open

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self._open |= {(partition.topic, partition.partition) for partition in partitions}

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self._open -= {(partition.topic, partition.partition) for partition in partitions}

    def _find_partitions(self) -> list[TopicPartition]:
        known = self._consumer.list_topics(timeout=METADATA_TIMEOUT_SECONDS).topics
        found: list[TopicPartition] = []
        for topic in self._options.topics:
            if topic not in known:
                raise not_found("topic", topic, known, "headrace topic list")
            there = sorted(known[topic].partitions)
            for partition in self._options.partitions or there:
                if partition not in there:
                    raise CliError(
                        f"topic {topic!r} has no partition {partition}",
                        f"its partitions are 0 to {len(there) - 1}",
                    )
                found.append((topic, partition))
        return found


def run_consume(options: ConsumeOptions, config: dict[str, Any], kafka: KafkaOptions) -> None:
    """Print records; a closed pipe, Ctrl-C and SIGTERM end it quietly, offsets committed."""
    from confluent_kafka import Consumer

    out = sys.stdout.buffer
    with kafka.errors(), quiet_pipe(), contextlib.suppress(KeyboardInterrupt):
        consumer = Consumer(config)
        try:
            consumption = Consumption(options, consumer, out)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, consumption.interrupt)
            consumption.begin()
            consumption.run()
        finally:
            consumer.close()


def consume_config(options: ConsumeOptions, config: dict[str, Any]) -> dict[str, Any]:
    """Consumer settings; a -X property wins over what the verb needs."""
    reset = "latest" if options.positions.start == "end" else "earliest"
    return {
        # Without a group nothing is joined or committed, but the library wants a name.
        "group.id": options.group if options.group is not None else "headrace-consume",
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        # The end of a partition is known when a fetch has waited this long.
        **({"fetch.wait.max.ms": 10} if options.exit_at_end else {}),
        **config,
    }


def reader_is_gone(out: BinaryIO) -> bool:
    """Whether standard output is a pipe that its reader has closed."""
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    poller.register(out.fileno(), 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))
