"""Who leads a partition, as responses of several APIs tell clients (KIP-951)."""

from __future__ import annotations

from headrace.protocol.schema import Message, int32, string


class LeaderIdAndEpoch(Message):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class NodeEndpoint(Message):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
