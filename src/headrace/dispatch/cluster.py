"""What a node asks the brokers beside reading and writing: topics, ends and committed offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.admin.groups import read_committed
from headrace.client.admin.topics import NeededTopic, create_topics
from headrace.client.consumer.offsets import Offsets
from headrace.client.errors import TopicNotCreated
from headrace.client.settings import translate
from headrace.client.wire.cluster import Cluster as Brokers
from headrace.client.wire.cluster import parse_servers
from headrace.client.wire.security import Security
from headrace.dispatch.errors import DispatchError
from headrace.protocol.errors import KafkaError as RefusedError

REQUEST_SECONDS = 10.0
# A topic that was made a moment ago may not be led yet.
LEADER_SECONDS = 10.0
LEADER_LOOK_SECONDS = 0.05

# So that the broker's clock alone says what was written after what.
_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
# An item is kept by its spool until it has an outcome, so the work topic need not be synced for
# each; many partitions with one record each would mean as many syncs.
_UNSYNCED = {"flush.messages": str(2**63 - 1), "flush.ms": "1000"}
DONE_RETENTION_MS = 7 * 86_400_000


class Cluster:
    """The cluster as an operator sees it; usable from many threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        self._config = translate(settings, "producer")
        self._admin = AdminClient(self._config)
        # A partition that has only just got a leader, or a coordinator that is still loading.
        self._insist = Offsets(self._admin, REQUEST_SECONDS, settings).insist

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 if there is no such topic."""
        return len(self._describe(topic))

    def ensure_topics(self, topic: str, done_topic: str, partitions: int) -> None:
        """Make the work topic and its done topic if they are not there."""
        wanted = [
            NeededTopic(topic, partitions, {**_BROKER_TIME, **_UNSYNCED}),
            # One partition: every node reads all of it, and outcomes share batches.
            NeededTopic(done_topic, 1, {**_BROKER_TIME, "retention.ms": str(DONE_RETENTION_MS)}),
        ]
        try:
            missing = [new for new in wanted if not self.partitions(new.name)]
        except (KafkaException, TimeoutError) as problem:
            raise DispatchError(
                f"no answer from {self._bootstrap} ({problem})", "is the broker running?"
            ) from None
        if not missing:
            return
        try:
            create_topics(self._admin, missing, REQUEST_SECONDS)
        except TopicNotCreated as refusal:
            raise DispatchError(refusal.message, refusal.hint) from None
        for new in missing:
            self._await_leaders(new.name)

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset after the last record of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.latest())

    def oldest(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.earliest())

    def since(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offset of each partition with a record since the time, -1 if there is none."""
        return self._offsets(topic, partitions, OffsetSpec.for_timestamp(time_ms))

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """What a group has committed; partitions without a commit are left out."""
        try:
            security = Security({name: str(value) for name, value in self._config.items()})
            servers = parse_servers(self._bootstrap)
            with Brokers(servers, security, REQUEST_SECONDS) as brokers:
                found = read_committed(brokers, group)
        except (RefusedError, ValueError) as refusal:
            raise DispatchError(f"the commits of group {group} cannot be read: {refusal}") from None
        return {number: found[topic, number] for number in partitions if (topic, number) in found}

    def _offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(topic, number): spec for number in partitions}
        if not asked:
            return {}

        def ask() -> dict[int, int]:
            answers = self._admin.list_offsets(asked, request_timeout=REQUEST_SECONDS)
            found = {it.partition: answer.result(REQUEST_SECONDS) for it, answer in answers.items()}
            return {partition: it.offset for partition, it in found.items()}

        deadline_s = time.monotonic() + REQUEST_SECONDS
        pause = threading.Event()
        while True:
            try:
                return self._insist(ask)
            except KafkaException as refusal:
                is_unknown = refusal.args[0].code() == KafkaError._NOENT
                if not is_unknown or time.monotonic() > deadline_s:
                    raise
            # The library goes on believing that a new topic has no leaders; another handle asks.
            self._admin = AdminClient(self._config)
            pause.wait(LEADER_LOOK_SECONDS)

    def _describe(self, topic: str) -> list[Any]:
        """A topic's partitions; unlike a listing, the question does not make the topic."""
        asked = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_SECONDS
        )
        try:
            found: list[Any] = asked[topic].result(REQUEST_SECONDS).partitions
            return found
        except KafkaException as refusal:
            if refusal.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return []
            raise

    def _await_leaders(self, topic: str) -> None:
        pause = threading.Event()
        for _ in range(int(LEADER_SECONDS / LEADER_LOOK_SECONDS)):
            found = self._describe(topic)
            if found and all(it.leader is not None for it in found):
                return
            pause.wait(LEADER_LOOK_SECONDS)
