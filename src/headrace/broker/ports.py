"""What a broker needs from outside itself: the cluster around it, and fault hooks in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.protocol.errors import ErrorCode


class BrokerAddress(NamedTuple):
    """One member of the cluster as clients see it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ClusterPort(Protocol):
    """What a broker asks the cluster around it."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def node_id(self) -> int: ...

    @property
    def controller_id(self) -> int: ...

    def brokers(self) -> Sequence[BrokerAddress]: ...

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch under which this broker leads the partition."""
        ...


class SingleNodeCluster:
    """The cluster of a single node: this broker leads every partition."""

    def __init__(self, cluster_id: str, address: BrokerAddress) -> None:
        self.cluster_id = cluster_id
        self.address = address

    @property
    def node_id(self) -> int:
        return self.address.node_id

    @property
    def controller_id(self) -> int:
        return self.address.node_id

    def brokers(self) -> Sequence[BrokerAddress]:
        return (self.address,)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return 0: leadership never moves, so the epoch never rises."""
        return 0


@dataclass(frozen=True, slots=True)
class Fail:
    """Respond to the request with this error instead of serving it."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Serve the request, but only after this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection without serving the request."""


Action = Fail | Delay | Drop


class Hooks(Protocol):
    """Faults on request: asked once per request before it is served."""

    def on_request(
        self, api_key: int, api_version: int, client_id: str | None
    ) -> Action | None: ...
