"""What a group coordinator stores, in Kafka's format of `__consumer_offsets`.

Inside the coordinator a stored fact is a `Change`; only `encode` and `decode` know its bytes. A
change without a value is a tombstone.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from headrace.protocol.logs import (
    read_key,
    read_prefix,
    read_versioned,
    write_key,
    write_versioned,
)
from headrace.protocol.logs.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

# The version of a key says what the record is about.
OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
# Kafka's newest non-flexible versions: what every broker since 2.1 and 2.3 can read.
OFFSET_VALUE_VERSION = 3
GROUP_VALUE_VERSION = 3
# Only version 1 has a retention that the client itself asked for (OffsetCommit v2-4).
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1

NO_TIMESTAMP = -1


class Commit(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


class StoredMember(NamedTuple):
    """A member of a stored generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class Generation(NamedTuple):
    """One generation of a group with its assignments; without members, the group is empty."""

    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


class OffsetChange(NamedTuple):
    """A partition's offset was committed, or (None) removed."""

    group_id: str
    topic: str
    partition: int
    commit: Commit | None


class GroupChange(NamedTuple):
    """A group has a new generation, or (None) was removed."""

    group_id: str
    generation: Generation | None


Change: TypeAlias = OffsetChange | GroupChange


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """The key and the value of a change's record."""
    if isinstance(change, OffsetChange):
        group_id, topic, partition, commit = change
        key = write_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
        return key, None if commit is None else _encode_commit(commit)
    key = write_key(GroupMetadataKey(group=change.group_id))
    return key, None if change.generation is None else _encode_generation(change.generation)


def decode(key: bytes, value: bytes | None) -> Change | None:
    """The change that a record means; None for unknown kinds of records."""
    kind = read_prefix(key)
    if kind in OFFSET_KEYS:
        offset_key = read_key(OffsetCommitKey, key)
        return OffsetChange(
            offset_key.group,
            offset_key.topic,
            offset_key.partition,
            None if value is None else _decode_commit(value),
        )
    if kind == GROUP_KEY:
        group_key = read_key(GroupMetadataKey, key)
        return GroupChange(group_key.group, None if value is None else _decode_generation(value))
    return None


def _encode_commit(commit: Commit) -> bytes:
    expires = commit.expire_timestamp_ms != NO_TIMESTAMP
    return write_versioned(
        OffsetCommitValue(
            offset=commit.offset,
            leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            commit_timestamp=commit.commit_timestamp_ms,
            expire_timestamp=commit.expire_timestamp_ms,
        ),
        OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION,
    )


def _decode_commit(data: bytes) -> Commit:
    value = read_versioned(OffsetCommitValue, data)
    return Commit(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


def _encode_generation(generation: Generation) -> bytes:
    return write_versioned(
        GroupMetadataValue(
            protocol_type=generation.protocol_type,
            generation=generation.generation,
            protocol=generation.protocol,
            leader=generation.leader,
            current_state_timestamp=generation.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.subscription,
                    assignment=member.assignment,
                )
                for member in generation.members
            ],
        ),
        GROUP_VALUE_VERSION,
    )


def _decode_generation(data: bytes) -> Generation:
    value = read_versioned(GroupMetadataValue, data)
    return Generation(
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(
            StoredMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                # Version 0 has one timeout only.
                member.session_timeout
                if member.rebalance_timeout < 0
                else member.rebalance_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )
