"""What consumers tell their group leader and what it assigns, inside JoinGroup and SyncGroup.

v1: owned partitions. v2: generation. v3: rack. A newer version is read as the newest known one.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, int32, string


class TopicPartition(Message):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = blob(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="0+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = blob(nullable="0+", default=None)
