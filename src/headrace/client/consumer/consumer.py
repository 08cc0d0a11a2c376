"""What applications call to read: as a member of a group, or alone."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.assignment import (
    WATCH_SECONDS,
    Assignable,
    Assignment,
    OnAssign,
    OnRevoke,
)
from headrace.client.consumer.commits import Commits, Consumed, OnCommit
from headrace.client.consumer.group_start import GroupStart
from headrace.client.consumer.offsets import OffsetReader, PartitionOffsets
from headrace.client.consumer.poller import RecordPoller
from headrace.client.consumer.settings import INTERNAL_TOPICS, read_settings
from headrace.client.consumer.start import parse_start
from headrace.client.errors import CommitFailed, UndecodableRecord
from headrace.client.interceptors import Chain
from headrace.client.serializers import Decoder, Deserializer
from headrace.client.settings import ClientSettings, with_bootstrap
from headrace.closing import Closing
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.large import LargeMessages

# What librdkafka fetches ahead where records are large; its default is four times as much.
LARGE_QUEUE_KBYTES = 16_384
# How long a closing consumer tries its last commit.
CLOSE_SECONDS = 5.0

_log = logging.getLogger("headrace.client")


class Consumer(Closing):
    """Reads records; a context manager, used by one thread at a time.

    Settings go by Kafka's names. With `group` (or `group.id`) it may subscribe and commit. `start`
    is where a group starts in a topic that it has never read, and where a consumer without a group
    starts: `earliest`, `latest`, `2h` (ago) or a time.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings,
        *,
        group: str | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        interceptors: Iterable[Any] = (),
        start: str | datetime | timedelta | None = None,
        large: LargeMessages | None = None,
    ) -> None:
        settings = read_settings(with_bootstrap(bootstrap), group, start)
        own = settings.own
        self.group = settings.group
        self._settings = settings
        self._decoder = Decoder(
            key_deserializer or own.get("key.deserializer"),
            value_deserializer or own.get("value.deserializer"),
        )
        self._chain = Chain(tuple(interceptors) or own.get("interceptor.classes"))
        self._commits = Commits(self._chain)
        config = {**settings.config, "on_commit": self._commits.answered}
        if large is not None:
            config.setdefault("queued.max.messages.kbytes", LARGE_QUEUE_KBYTES)
        self._client = LibraryConsumer(config)
        self._offsets = OffsetReader(self._client, settings.api_timeout_s, settings.config)
        group_start = None
        if self.group is not None:
            group_start = GroupStart(
                self._offsets,
                self.group,
                start=settings.start,
                reset=settings.reset,
                limits=settings.limits,
            )
        self._commits.connect(
            self._client, self._offsets, group_start.marks if group_start is not None else {}
        )
        self._consumed = Consumed() if settings.auto_commits else None
        self._assignment = Assignment(
            self._client,
            self._offsets,
            self._commits,
            group_start=group_start,
            start=settings.start or settings.reset,
            is_cooperative=settings.is_cooperative,
            consumed=self._consumed,
        )
        self._large = None if large is None else large.receiver(settings.config)
        if self._large is not None:
            self._commits.floors = self._large.floors
            self._assignment.on_left = self._large.forget
        self._poller = RecordPoller(
            self._client,
            self._assignment,
            self._offsets,
            large=self._large,
            reset=settings.reset,
            group=self.group,
        )
        self._is_closed = False
        self._commit_at_s = self._watch_at_s = self._due_s = 0.0

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]],
        *,
        on_assign: OnAssign | None = None,
        on_revoke: OnRevoke | None = None,
        on_lost: OnRevoke | None = None,
    ) -> None:
        """Join the group for topics by name, or by a regular expression: compiled, or with `^`.

        Listeners get TopicPartitions and are called from a poll. `on_assign` may return them with
        other offsets, or `seek`. `on_lost` (else `on_revoke`) gets partitions that another member
        owns already.
        """
        self._need_group("subscribe")
        named = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
        names = [_expression(one) if isinstance(one, re.Pattern) else one for one in named]
        self._refuse_hidden(name for name in names if not name.startswith("^"))
        self._assignment.subscribe(names, on_assign, on_revoke, on_lost)

    def assign(self, partitions: Iterable[Assignable] | str) -> None:
        """Read without sharing: whole topics by name, new partitions included, or partitions.

        A partition is (topic, partition), (topic, partition, offset) or a TopicPartition. Without
        an offset it starts at the group's committed one, else at `start`.
        """
        asked = [partitions] if isinstance(partitions, str) else list(partitions)
        self._refuse_hidden(one if isinstance(one, str) else _topic(one) for one in asked)
        self._assignment.assign(asked)
        self._poller.forget()

    def unsubscribe(self) -> None:
        """Leave the group, or release what was assigned."""
        self._assignment.unassign()
        self._poller.forget()

    def poll(self, timeout_s: float = 1.0) -> Any:
        """The next record (a confluent_kafka.Message), or None if none came in time.

        UndecodableRecord if a deserialiser refuses it; the next poll continues after it.
        """
        if self._large is None:
            self._begin_poll()
            message = self._poller.one(timeout_s)
            return None if message is None else self._returned(message)
        # A large message has many records, so it may take several polls.
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._begin_poll()
            found = self._poller.batch(1, max(0.0, deadline_s - time.monotonic()))
            if found:
                return self._returned(found[0])
            if time.monotonic() >= deadline_s:
                return None

    def _returned(self, message: Any) -> Any:
        if self._consumed is not None:
            self._consumed.returned([message])
        if self._decoder:
            problem = self._decoder.decode(message)
            if problem is not None:
                raise UndecodableRecord(message, problem) from problem
        if self._chain:
            passed = self._chain.pass_through("on_consume", [message])
            return passed[0] if passed else None
        return message

    def poll_batch(self, max_records: int | None = None, timeout_s: float = 1.0) -> list[Any]:
        """The records (confluent_kafka.Message) that have arrived; waits for the first.

        A record that the deserialiser refuses keeps its bytes and has an `error()`.
        """
        self._begin_poll()
        max_records = max_records or self._settings.poll_records_max
        messages = self._poller.batch(max_records, timeout_s)
        if self._consumed is not None:
            self._consumed.returned(messages)
        if self._decoder:
            for message in messages:
                self._decoder.decode(message)
        if self._chain and messages:
            messages = self._chain.pass_through("on_consume", messages)
        return messages

    def seek(self, topic: str, partition: int, offset: int | str | datetime) -> None:
        """Continue from an offset, or from `earliest`, `latest`, a duration ago or a time."""
        if not isinstance(offset, int):
            now_ms = time.time_ns() // 1_000_000
            found = self._offsets.at([(topic, partition)], parse_start(offset), now_ms)
            offset = found[topic, partition]
        self._assignment.seek(topic, partition, offset)
        self._poller.forget((topic, partition))

    def pause(self, partitions: Iterable[Any]) -> None:
        """Read nothing from these partitions until `resume`; they stay assigned."""
        self._assignment.pause(_partitions(partitions))

    def resume(self, partitions: Iterable[Any]) -> None:
        """Read from these partitions again."""
        self._assignment.resume(_partitions(partitions))

    def commit_sync(self, offsets: PartitionOffsets | None = None) -> None:
        """Commit offsets (of the next records to read), or all returned so far; wait for it.

        CommitFailed if it was refused, as when the partitions belong to another member now.
        """
        self._need_group("commit_sync")
        self._commits.sync(self._done() if offsets is None else offsets)

    def commit_async(
        self, offsets: PartitionOffsets | None = None, callback: OnCommit | None = None
    ) -> None:
        """Commit without waiting; `callback(error, partitions)` is called from a later poll."""
        self._need_group("commit_async")
        self._commits.later(self._done() if offsets is None else offsets, callback)

    def position(self, partitions: Iterable[Any] | None = None) -> dict[TopicPartition, int]:
        """The next offset to read, of partitions from which something has been read."""
        asked = self._assignment.owned if partitions is None else partitions
        found = self._client.position(_partitions(asked))
        offsets = {(it.topic, it.partition): it.offset for it in found if it.offset >= 0}
        # The library counts as read what this consumer has yet to return; the first one wins.
        for it in reversed(self._poller.unreturned()):
            if it.error() is None and (it.topic(), it.partition()) in offsets:
                offsets[it.topic(), it.partition()] = it.offset()
        return offsets

    def committed(self, partitions: Iterable[Any]) -> dict[TopicPartition, int | None]:
        """The offsets that the group has committed; None where it has none."""
        self._need_group("committed")
        asked = [(it.topic, it.partition) for it in _partitions(partitions)]
        found = self._offsets.committed(asked)
        return {(it.topic, it.partition): it.offset if it.offset >= 0 else None for it in found}

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned now."""
        return sorted(self._assignment.owned)

    def group_metadata(self) -> Any:
        """The identity of this member, for `Producer.send_offsets`."""
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        """Commit what was returned (with auto commit) and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.group is not None and self._assignment.owned:
                # A closing consumer does not wait a minute for brokers that are gone.
                self._commits.leave(next(iter(self._assignment.owned)), CLOSE_SECONDS)
            if self._consumed is not None and self._assignment.refusal is None:
                self._consumed.advance()
                self._assignment.commit_done()
        finally:
            self._assignment.is_closing = True
            self._client.close()
            if self._large is not None:
                self._large.close()
            self._chain.tell("close")
        if self._assignment.failure is not None:
            self._poller.raise_failure([])

    def _begin_poll(self) -> None:
        if self._assignment.refusal is not None:
            raise self._assignment.refusal
        if self._consumed is not None:
            self._consumed.advance()
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._housekeep(now_s)

    def _housekeep(self, now_s: float) -> None:
        if now_s >= self._watch_at_s:
            if self._watch_at_s:
                self._assignment.watch()
            self._watch_at_s = now_s + WATCH_SECONDS
        if self._consumed is not None and now_s >= self._commit_at_s:
            done = self._consumed.take() if self._commit_at_s else {}
            self._commit_at_s = now_s + self._settings.commit_interval_s
            self._commits.later(done, self._on_auto_commit)
            self._due_s = min(self._watch_at_s, self._commit_at_s)
        else:
            self._due_s = self._watch_at_s

    def _on_auto_commit(self, error: CommitFailed | None, partitions: list[Any]) -> None:
        if error is not None and self._consumed is not None:
            _log.warning("%s", error)
            # A revoked partition belongs to another member, which may have read further.
            owned = self._assignment.owned
            self._consumed.restore(it for it in partitions if (it.topic, it.partition) in owned)

    def _done(self) -> PartitionOffsets:
        """The offsets after what the caller has been given so far."""
        if self._consumed is not None:
            if not self._poller.is_batching:
                self._consumed.advance()
            return self._consumed.take()
        if self._poller.is_batching and self._assignment.is_listening:
            # The library counts records as read that this poll has not returned yet.
            raise ValueError(
                "inside a listener of poll_batch the offsets to commit must be given: "
                "commit_sync({(topic, partition): offset})"
            )
        return self.position()

    def _need_group(self, what: str) -> None:
        if self.group is None:
            raise ValueError(f"{what} needs a group: write Consumer(..., group=NAME)")

    def _refuse_hidden(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if self._settings.hides_internal and topic in INTERNAL_TOPICS:
                raise ValueError(
                    f"{topic} is an internal topic: set exclude.internal.topics=false to read it"
                )


def _expression(pattern: re.Pattern[str]) -> str:
    """A compiled expression in POSIX syntax for the library; it must match the whole name."""
    text = pattern.pattern.removeprefix("^").removesuffix("$")
    return f"^({text.replace(chr(92) + 'd', '[0-9]')})$"


def _partitions(given: Iterable[Any]) -> list[Any]:
    return [LibraryPartition(*it) if isinstance(it, tuple) else it for it in given]


def _topic(partition: Any) -> str:
    return str(partition[0] if isinstance(partition, tuple) else partition.topic)
