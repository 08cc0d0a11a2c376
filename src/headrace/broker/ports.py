"""What a broker needs from outside itself: a cluster around it, and fault hooks in tests."""

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
    """The cluster around a broker; a single node has the trivial one in `alone.py`."""

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


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer the request with this error instead of serving it."""

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
