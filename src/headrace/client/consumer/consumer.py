"""A consumer: a member of a group, or on its own; loses nothing and replays nothing by chance."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.assignment import WATCH_SECONDS, Asked, Assignment, OnAssign, OnRevoke
from headrace.client.consumer.commits import Commits, Consumed, OnCommit
from headrace.client.consumer.group_start import GroupStart
from headrace.client.consumer.offsets import Offsets, Places
from headrace.client.consumer.settings import INTERNAL_TOPICS, read_settings
from headrace.client.consumer.start import parse_start
from headrace.client.errors import CommitFailed, NoStart, UndecodableRecord
from headrace.client.interceptors import Chain
from headrace.client.serializers import Decoder, Deserializer
from headrace.client.settings import Settings, with_bootstrap
from headrace.closing import Closing
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.large import LargeMessages

# What the library fetches ahead where records are large; its own default is four times that.
LARGE_QUEUE_KBYTES = 16_384
# A consumer that closes tries its last commit for so long.
CLOSE_SECONDS = 5.0
# Errors that trying again does not cure.
_LASTING = (
    # Such as a static member that another has fenced: the library never recovers, and the error
    # it hands out does not call itself fatal.
    KafkaError._FATAL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError._AUTHENTICATION,
)

_log = logging.getLogger("headrace.client")


class Consumer(Closing):
    """Reads records; a context manager, used by one thread at a time.

    Settings go by Kafka's names. With `group` (or `group.id`) it may subscribe and commit. `start`
    says where a group begins in a topic that it has never read, and where a consumer without a
    group begins: `earliest`, `latest`, `2h` (ago) or a time.
    """

    def __init__(
        self,
        bootstrap: str | Settings,
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
        self._offsets = Offsets(self._client, settings.api_timeout_s, settings.config)
        beginnings = None
        if self.group is not None:
            beginnings = GroupStart(
                self._offsets,
                self.group,
                start=settings.start,
                reset=settings.reset,
                limits=settings.limits,
            )
        self._commits.connect(
            self._client, self._offsets, beginnings.marks if beginnings is not None else {}
        )
        self._consumed = Consumed() if settings.auto_commits else None
        self._assigning = Assignment(
            self._client,
            self._offsets,
            self._commits,
            beginnings=beginnings,
            start=settings.start or settings.reset,
            is_cooperative=settings.is_cooperative,
            consumed=self._consumed,
        )
        self._large = None if large is None else large.receiver(settings.config)
        if self._large is not None:
            self._commits.floors = self._large.floors
            self._assigning.on_left = self._large.forget
        self._is_batching = False
        self._is_closed = False
        # Read already, and to be returned by the next poll.
        self._held: list[Any] = []
        self._warned: set[str] = set()
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
        other offsets, or `seek`; `on_lost` gets what belongs to others already (else `on_revoke`).
        """
        self._need_group("subscribe")
        named = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
        names = [_expression(one) if isinstance(one, re.Pattern) else one for one in named]
        self._refuse_hidden(name for name in names if not name.startswith("^"))
        self._assigning.subscribe(names, on_assign, on_revoke, on_lost)

    def assign(self, partitions: Iterable[Asked] | str) -> None:
        """Read without sharing: whole topics by name (new partitions come along), or partitions.

        A partition is (topic, partition), (topic, partition, offset) or a TopicPartition. Where no
        offset is given, it begins at the group's committed one, else as `start` says.
        """
        asked = [partitions] if isinstance(partitions, str) else list(partitions)
        self._refuse_hidden(one if isinstance(one, str) else _topic(one) for one in asked)
        self._assigning.assign(asked)
        self._held = []

    def unsubscribe(self) -> None:
        """Leave the group, or let go of what was assigned."""
        self._assigning.unassign()
        self._held = []

    def poll(self, timeout_s: float = 1.0) -> Any:
        """The next record (a confluent_kafka.Message), or None if none came in time.

        UndecodableRecord if a deserialiser refuses it; the next poll goes on behind it.
        """
        if self._large is not None:
            return self._poll_whole(timeout_s)
        self._begin_poll()
        if self._held:
            message = self._held.pop(0)
        else:
            message = self._client.poll(timeout_s)
            if self._assigning.failure is not None:
                self._raise_failure([] if message is None else [message])
        if message is None:
            return None
        if message.error() is not None:
            self._on_error(message)
            return None
        return self._returned(message)

    def _poll_whole(self, timeout_s: float) -> Any:
        """The same with large messages among the records, which are many polls each."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._begin_poll()
            found = self._whole(self._consume(1, max(0.0, deadline_s - time.monotonic())), 1)
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
        """What is there, up to so many records (confluent_kafka.Message); waits for the first.

        With a deserialiser, a record that it refuses keeps its bytes and says so in `error()`.
        """
        self._begin_poll()
        max_records = max_records or self._settings.poll_records_max
        messages = self._whole(self._consume(max_records, timeout_s), max_records)
        if self._consumed is not None:
            self._consumed.returned(messages)
        if self._decoder:
            for message in messages:
                self._decoder.decode(message)
        if self._chain and messages:
            messages = self._chain.pass_through("on_consume", messages)
        return messages

    def seek(self, topic: str, partition: int, offset: int | str | datetime) -> None:
        """Go on from an offset, or from `earliest`, `latest`, a duration ago or a time."""
        if not isinstance(offset, int):
            place = (topic, partition)
            offset = self._offsets.at([place], parse_start(offset), _now_ms())[place]
        self._assigning.seek(topic, partition, offset)
        self._held = [it for it in self._held if (it.topic(), it.partition()) != (topic, partition)]

    def pause(self, partitions: Iterable[Any]) -> None:
        """Read nothing from these partitions until `resume`; the group keeps them."""
        self._assigning.pause(_partitions(partitions))

    def resume(self, partitions: Iterable[Any]) -> None:
        """Read from these partitions again."""
        self._assigning.resume(_partitions(partitions))

    def commit_sync(self, offsets: Places | None = None) -> None:
        """Commit offsets (of the next records to read), or all returned so far; wait for it.

        CommitFailed if it was refused, as when the partitions belong to another member now.
        """
        self._need_group("commit_sync")
        self._commits.sync(self._done() if offsets is None else offsets)

    def commit_async(self, offsets: Places | None = None, callback: OnCommit | None = None) -> None:
        """Commit without waiting; `callback(error, partitions)` is called from a later poll."""
        self._need_group("commit_async")
        self._commits.later(self._done() if offsets is None else offsets, callback)

    def position(self, partitions: Iterable[Any] | None = None) -> dict[TopicPartition, int]:
        """The next offset to be read, of partitions from which something has been."""
        asked = self._assigning.owned if partitions is None else partitions
        found = self._client.position(_partitions(asked))
        places = {(it.topic, it.partition): it.offset for it in found if it.offset >= 0}
        # The library counts as read what this consumer has yet to return; the last comes first.
        left = [] if self._large is None else self._large.left()
        for it in reversed([*left, *self._held]):
            if it.error() is None and (it.topic(), it.partition()) in places:
                places[it.topic(), it.partition()] = it.offset()
        return places

    def committed(self, partitions: Iterable[Any]) -> dict[TopicPartition, int | None]:
        """What the group has committed; None where it has nothing."""
        self._need_group("committed")
        asked = [(it.topic, it.partition) for it in _partitions(partitions)]
        found = self._offsets.committed(asked)
        return {(it.topic, it.partition): it.offset if it.offset >= 0 else None for it in found}

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return sorted(self._assigning.owned)

    def group_metadata(self) -> Any:
        """Who this member is, for `Producer.send_offsets`."""
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        """Commit what was returned (with auto commit) and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.group is not None and self._assigning.owned:
                # Nobody who leaves waits a minute for brokers that are gone.
                self._commits.leave(next(iter(self._assigning.owned)), CLOSE_SECONDS)
            if self._consumed is not None and self._assigning.refusal is None:
                self._consumed.advance()
                self._assigning.commit_done()
        finally:
            self._assigning.is_closing = True
            self._client.close()
            if self._large is not None:
                self._large.close()
            self._chain.tell("close")
        if self._assigning.failure is not None:
            self._raise_failure([])

    def _consume(self, max_records: int, timeout_s: float) -> list[Any]:
        client, assigning = self._client, self._assigning
        messages, self._held = self._held[:max_records], self._held[max_records:]
        changes = assigning.changes
        self._is_batching = True
        try:
            # The library's own wait would be for as many as that, or for the whole time.
            if not messages:
                messages = client.consume(max_records, 0)
            if not messages and timeout_s > 0 and assigning.failure is None:
                first = client.poll(timeout_s)
                if first is not None:
                    messages = [first]
                    if max_records > 1 and assigning.failure is None:
                        messages += client.consume(max_records - 1, 0)
        finally:
            self._is_batching = False
        if changes != assigning.changes:
            messages = self._still_owned(messages)
        if assigning.failure is not None:
            self._raise_failure(messages)
        return messages

    def _whole(self, messages: list[Any], max_records: int) -> list[Any]:
        """Without errors, and with large messages in place of their records."""
        for message in messages:
            if message.error() is not None:
                messages = self._without_errors(messages)
                break
        if self._large is None:
            return messages
        messages = self._large.admit(messages)
        # Among them may be what an earlier poll has read, and could not return.
        self._held = messages[max_records:] + self._held
        return messages[:max_records]

    def _still_owned(self, messages: list[Any]) -> list[Any]:
        """Without what belongs to another member since partitions were taken away."""
        owned = self._assigning.owned
        return [
            it for it in messages if it.error() is not None or (it.topic(), it.partition()) in owned
        ]

    def _raise_failure(self, messages: list[Any]) -> None:
        """Raise what a listener has raised; what was read meanwhile is for the next poll."""
        self._held = messages + self._held
        failure, self._assigning.failure = self._assigning.failure, None
        assert failure is not None
        raise failure

    def _begin_poll(self) -> None:
        if self._assigning.refusal is not None:
            raise self._assigning.refusal
        if self._consumed is not None:
            self._consumed.advance()
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._housekeep(now_s)

    def _housekeep(self, now_s: float) -> None:
        if now_s >= self._watch_at_s:
            if self._watch_at_s:
                self._assigning.watch()
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
            # What was taken away meanwhile is another member's, which may be further by now.
            owned = self._assigning.owned
            self._consumed.restore(it for it in partitions if (it.topic, it.partition) in owned)

    def _done(self) -> Places:
        """What the caller has been given so far."""
        if self._consumed is not None:
            if not self._is_batching:
                self._consumed.advance()
            return self._consumed.take()
        if self._is_batching and self._assigning.is_listening:
            # The library counts records as read that this very poll has not returned yet.
            raise ValueError("inside a listener of poll_batch, say which offsets to commit")
        return self.position()

    def _without_errors(self, messages: list[Any]) -> list[Any]:
        records = []
        for at, message in enumerate(messages):
            if message.error() is None:
                records.append(message)
                continue
            try:
                self._on_error(message)
            except BaseException:
                # The library does not hand them out again, so they are for the next poll.
                self._held = records + messages[at + 1 :] + self._held
                raise
        return records

    def _on_error(self, message: Any) -> None:
        """Raise what will not pass; say once what may."""
        error = message.error()
        code = error.code()
        if code == KafkaError._AUTO_OFFSET_RESET and message.topic() is not None:
            self._begin_again(message.topic(), message.partition())
            return
        if error.fatal() or code in _LASTING:
            raise KafkaException(error)
        text = f"{message.topic() or self.group}: {error.str()}"
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _begin_again(self, topic: str, partition: int) -> None:
        """The place to read from is gone: begin again as `auto.offset.reset` says."""
        if self._settings.reset is None:
            raise NoStart(
                f"the offset to read next in {topic}/{partition} is not there any more, and "
                "auto.offset.reset is none",
                "seek to another",
            )
        place = (topic, partition)
        offset = self._offsets.at([place], self._settings.reset, _now_ms())[place]
        self._assigning.begin_again(topic, partition, offset)

    def _need_group(self, what: str) -> None:
        if self.group is None:
            raise ValueError(f"{what} needs a group: Consumer(..., group=NAME)")

    def _refuse_hidden(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if self._settings.hides_internal and topic in INTERNAL_TOPICS:
                raise ValueError(f"{topic} is an internal topic: set exclude.internal.topics=false")


def _expression(pattern: re.Pattern[str]) -> str:
    """A compiled expression for the library, which takes POSIX ones; the whole name must match."""
    text = pattern.pattern.removeprefix("^").removesuffix("$")
    return f"^({text.replace(chr(92) + 'd', '[0-9]')})$"


def _partitions(places: Iterable[Any]) -> list[Any]:
    return [LibraryPartition(*it) if isinstance(it, tuple) else it for it in places]


def _topic(place: Any) -> str:
    return str(place[0] if isinstance(place, tuple) else place.topic)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
