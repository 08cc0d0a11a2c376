"""Records of the `__consumer_offsets` topic for share groups (KIP-932)."""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int8, int32, int64, string, uuid


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    group_id: str = string()


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible=0):
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Message):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible=0):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Message):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    group_id: str = string()


class TopicPartitionsInfo(Message):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Message):
    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
