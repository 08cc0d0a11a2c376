"""Records of the `__consumer_offsets` topic: committed offsets and classic groups.

OffsetCommitValue v1: expiry time (v1 only). v3: leader epoch. v4: flexible, topic id.
GroupMetadataValue v1: rebalance timeout. v2: when the state last changed. v3: instance id.
v4: flexible.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, int32, int64, string, uuid


class OffsetCommitKey(Message, key=1, versions="0"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, key=1, versions="0-4", flexible=4):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class GroupMetadataKey(Message, key=2, versions="0"):
    group: str = string()


class MemberMetadata(Message):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Message, key=2, versions="0-4", flexible=4):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
