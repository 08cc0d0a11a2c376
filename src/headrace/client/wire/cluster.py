"""Requests to the right broker of a cluster: any, the leader of a partition, a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.client.retry_loop import retry
from headrace.client.wire.addresses import parse_servers as parse_servers
from headrace.client.wire.connection import AnswerT, BrokerConnection
from headrace.client.wire.errors import refused
from headrace.client.wire.security import Security
from headrace.closing import Closing
from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import VERSION_MAX, Message

PAUSE_SECONDS = 0.1
# The last version that asks for one coordinator; later ones ask for many.
FIND_ONE_VERSION = 3

T = TypeVar("T")


class CoordinatorOf(IntEnum):
    """What a coordinator coordinates."""

    GROUP = 0
    TRANSACTION = 1


class BrokerAddress(NamedTuple):
    """Where a broker is."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id} ({self.host}:{self.port})"


class ClusterClient(Closing):
    """Asks the right broker, again while a refusal is passing; a context manager.

    A lasting refusal is a KafkaError, a cluster that does not answer an OSError.
    """

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], security: Security, timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._timeout_s = timeout_s
        self._wires: dict[tuple[str, int], BrokerConnection] = {}

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires.values():
            wire.close()

    def connect(self, host: str, port: int) -> BrokerConnection:
        """A separate connection, for a request that is answered late; the caller closes it."""
        return BrokerConnection(host, port, self._security, self._timeout_s)

    def brokers(self) -> list[BrokerAddress]:
        """The brokers that are up."""
        return _brokers(self._metadata([]))

    def topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        """These topics with their partitions, or all; a missing one has an error code."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        return self._metadata(asked).topics

    def leaders(self, topics: Iterable[str]) -> dict[tuple[str, int], BrokerAddress | None]:
        """The leader of each partition of topics; None where there is none at the moment."""
        metadata = self._metadata([MetadataRequestTopic(name=name) for name in topics])
        brokers = {broker.node_id: broker for broker in _brokers(metadata)}
        return {
            (topic.name or "", found.partition_index): brokers.get(found.leader_id)
            for topic in metadata.topics
            for found in topic.partitions
        }

    def coordinator(self, of: CoordinatorOf, key: str) -> BrokerAddress:
        """The broker that coordinates a group or a transactional id."""

        def find() -> FindCoordinatorResponse:
            return self._any().ask(
                FindCoordinatorRequest(key=key, key_type=of),
                FindCoordinatorResponse,
                FIND_ONE_VERSION,
            )

        found = self.insist(find, lambda answer: (answer.error_code, answer.error_message))
        return BrokerAddress(found.node_id, found.host, found.port)

    def ask_broker(
        self,
        broker: BrokerAddress,
        request: Message,
        answer: type[AnswerT],
        version_max: int = VERSION_MAX,
    ) -> AnswerT:
        """Ask one broker, once."""
        return self._wire(broker.host, broker.port).ask(request, answer, version_max)

    def ask_brokers(
        self,
        request: Message,
        answer: type[AnswerT],
        refusal: Callable[[AnswerT], tuple[int, str | None]],
    ) -> list[tuple[BrokerAddress, AnswerT]]:
        """Ask every broker, where each knows only a part of the answer."""
        return [
            (broker, self.insist(partial(self.ask_broker, broker, request, answer), refusal))
            for broker in self.brokers()
        ]

    def ask_coordinator(
        self,
        of: CoordinatorOf,
        key: str,
        request: Message,
        answer: type[AnswerT],
        refusal: Callable[[AnswerT], tuple[int, str | None]],
        version_max: int = VERSION_MAX,
    ) -> AnswerT:
        """Ask the coordinator of a key; `refusal` finds error code and message in the answer."""

        def ask() -> AnswerT:
            return self.ask_broker(self.coordinator(of, key), request, answer, version_max)

        return self.insist(ask, refusal)

    def ask_leader(
        self,
        topic: str,
        partition: int,
        request: Message,
        answer: type[AnswerT],
        refusal: Callable[[AnswerT], tuple[int, str | None]],
    ) -> AnswerT:
        """Ask the leader of a partition; `refusal` finds error code and message in the answer."""
        return self.insist(
            lambda: self.ask_broker(self.leader(topic, partition), request, answer), refusal
        )

    def insist(self, attempt: Callable[[], T], refusal: Callable[[T], tuple[int, str | None]]) -> T:
        """Retry while the refusal is passing, such as that of a coordinator that still loads."""
        answered: KafkaError | None = None

        def ask() -> T:
            nonlocal answered
            answer = attempt()
            code, message = refusal(answer)
            if code:
                answered = refused(code, message)
                raise answered
            return answer

        def pause_s(error: Exception) -> float | None:
            # What the attempt raises itself, as for an unknown topic, is not asked again.
            is_passing = answered is error and answered.code.retriable
            return PAUSE_SECONDS if is_passing else None

        return retry(ask, pause_s, timeout_s=self._timeout_s)

    def leader(self, topic: str, partition: int) -> BrokerAddress:
        """The leader of a partition; KafkaError if there is none."""
        leaders = self.leaders([topic])
        if (topic, partition) not in leaders:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader = leaders[topic, partition]
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def _metadata(self, topics: list[MetadataRequestTopic] | None) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self._any().ask(request, MetadataResponse)

    def _any(self) -> BrokerConnection:
        """A connection to the first bootstrap server that answers."""
        problem = OSError("bootstrap.servers is empty: write HOST:PORT")
        for host, port in self._bootstrap:
            try:
                return self._wire(host, port)
            except OSError as error:
                problem = error
        raise problem

    def _wire(self, host: str, port: int) -> BrokerConnection:
        wire = self._wires.get((host, port))
        if wire is None or wire.is_closed:
            wire = self._wires[host, port] = self.connect(host, port)
        return wire


def _brokers(metadata: MetadataResponse) -> list[BrokerAddress]:
    return sorted(BrokerAddress(row.node_id, row.host, row.port) for row in metadata.brokers)
