"""What a node asks the brokers about its topics: partitions, ends and committed offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headrace.client.admin.groups import read_committed
from headrace.client.consumer.offsets import OffsetReader
from headrace.client.settings import translate
from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security
from headrace.dispatch.errors import DispatchError
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens import open_tokens
from headrace.protocol import errors as protocol_errors

REQUEST_SECONDS = 10.0
# A new topic may not have leaders yet.
LEADER_SECONDS = 10.0
LEADER_POLL_SECONDS = 0.05

# So that all times come from the broker's clock.
_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
# A job stays in its spool until it has an outcome, so the work topic need not be synced for each:
# many partitions with one record each would mean as many syncs.
_UNSYNCED = {"flush.messages": str(2**63 - 1), "flush.ms": "1000"}
DONE_RETENTION_MS = 7 * 86_400_000


class TopicAdmin:
    """Creates a dispatcher's topics and answers questions about them; usable from many threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        self._config = translate(settings, "producer")
        self._admin = AdminClient(self._config)
        # Retries while a partition has just got a leader or a coordinator is still loading.
        self._insist = OffsetReader(self._admin, REQUEST_SECONDS, settings).insist

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it does not exist."""
        return len(self._describe(topic))

    def ensure_topics(self, topic: str, done_topic: str, partitions: int) -> None:
        """Create the work topic and its done topic if they do not exist."""
        wanted = [
            NewTopic(topic, partitions, config={**_BROKER_TIME, **_UNSYNCED}),
            # One partition: every node reads all of it, and outcomes share batches.
            NewTopic(
                done_topic, 1, config={**_BROKER_TIME, "retention.ms": str(DONE_RETENTION_MS)}
            ),
        ]
        try:
            missing = [new for new in wanted if not self.partitions(new.topic)]
        except (KafkaException, TimeoutError) as problem:
            raise DispatchError(
                f"no answer from {self._bootstrap} ({problem})", "is the broker running?"
            ) from None
        if not missing:
            return
        for name, made in self._admin.create_topics(missing).items():
            try:
                made.result(REQUEST_SECONDS)
            except KafkaException as refusal:
                error = refusal.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise DispatchError(
                        f"topic {name} cannot be created: {error.str()}",
                        f"create {name} beforehand",
                    ) from None
        for new in missing:
            self._await_leaders(new.topic)

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset after the last record of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.latest())

    def oldest(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.earliest())

    def since(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offset of each partition with a record since this time, else -1."""
        return self._offsets(topic, partitions, OffsetSpec.for_timestamp(time_ms))

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets that a group has committed; partitions without a commit are left out."""
        try:
            security = Security({name: str(value) for name, value in self._config.items()})
            servers = parse_servers(self._bootstrap)
            with ClusterClient(servers, security, REQUEST_SECONDS) as cluster:
                found = read_committed(cluster, group)
        except (protocol_errors.KafkaError, ValueError) as refusal:
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
            # The library keeps believing that a new topic has no leaders; a new client asks again.
            self._admin = AdminClient(self._config)
            pause.wait(LEADER_POLL_SECONDS)

    def _describe(self, topic: str) -> list[Any]:
        """A topic's partitions; unlike a listing, this does not create the topic."""
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
        for _ in range(int(LEADER_SECONDS / LEADER_POLL_SECONDS)):
            found = self._describe(topic)
            if found and all(it.leader is not None for it in found):
                return
            pause.wait(LEADER_POLL_SECONDS)


def topic_status(
    settings: Mapping[str, Any], topic: str, tokens: str, group: str | None = None
) -> dict[str, Any]:
    """Every partition with its token and backlog, the tokens in each state, and waiting nodes."""
    admin = TopicAdmin(settings)
    count = admin.partitions(topic)
    if not count:
        raise DispatchError(f"there is no topic {topic}", "headrace topic list")
    numbers = range(count)
    ends = admin.ends(topic, numbers)
    committed = admin.committed(group or f"headrace.dispatch.{topic}", topic, numbers)
    store = open_tokens(tokens, topic, limits=DispatchLimits(), policy="fair")
    try:
        found = store.status()
    finally:
        store.close()
    rows: list[dict[str, Any]] = []
    for number in numbers:
        view = found.tokens.get(number)
        is_leased = view is not None and view.state in ("offered", "out")
        rows.append(
            {
                "partition": number,
                "token": None if view is None else view.state,
                "fence": None if view is None else view.fence.text(),
                "node": (view.node or None) if view is not None else None,
                "lease_ms": view.left_ms if view is not None and is_leased else None,
                "backlog": ends[number] - committed[number] if number in committed else None,
            }
        )
    return {
        "topic": topic,
        "tokens": {**found.counts(), "missing": sum(row["token"] is None for row in rows)},
        "waiting": found.waiting,
        "partitions": rows,
    }
