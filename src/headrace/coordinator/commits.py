"""Requests on committed offsets: OffsetCommit, OffsetFetch and OffsetDelete.

Topics have names here; the broker translates topic ids (v10) before and after.
"""

from __future__ import annotations

from headrace.coordinator.commit_record_templates import CommitRecordTemplate, NoTemplate
from headrace.coordinator.effects import Call, Result
from headrace.coordinator.group import Group
from headrace.coordinator.offsets import Offsets
from headrace.coordinator.records import NO_TIMESTAMP, Commit, OffsetChange
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import COMMIT_ANSWERS, State
from headrace.coordinator.txn_commits import commit_in_transaction
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from headrace.protocol.error_responses import failed_response
from headrace.protocol.errors import ErrorCode

NO_OFFSET = -1
NO_EPOCH = -1
TIMESTAMP_MAX = 2**63 - 1
# From this version a commit to an unknown group gets an error of its own; before, its generation
# is called illegal.
GROUP_NOT_FOUND_VERSION = 9


class Commits:
    """Requests on the offsets of one coordinator's groups."""

    def __init__(self, groups: dict[str, Group], offsets: Offsets, settings: GroupSettings) -> None:
        self._groups = groups
        self._offsets = offsets
        self._settings = settings

    def commit(self, request: OffsetCommitRequest, call: Call) -> Result:
        """Store the valid offsets; the response names the others."""
        out = Result()
        group = self._groups.get(request.group_id)
        error = check_commit(
            group,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            call.api_version,
        )
        if error:
            return out.reply(call.token, refused_commit(request, error))
        if group is not None and request.member_id in group.members:
            # A commit extends the session, as a heartbeat does.
            group.members[request.member_id].beat(call.now.monotonic_ms)
        now_ms = call.now.wall_ms
        expire_ms = NO_TIMESTAMP
        if request.retention_time_ms >= 0:
            expire_ms = min(now_ms + request.retention_time_ms, TIMESTAMP_MAX)
        metadata_max = self._settings.offset_metadata_bytes_max
        group_id = request.group_id
        records = out.records
        topics = []
        for topic in request.topics:
            name = topic.name
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                metadata = partition.committed_metadata or ""
                if len(metadata) > metadata_max:
                    error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    error_code = ErrorCode.NONE
                    commit = Commit(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now_ms,
                        expire_ms,
                    )
                    records.append(OffsetChange(group_id, name, index, commit))
                partitions.append(
                    OffsetCommitResponsePartition(partition_index=index, error_code=error_code)
                )
            topics.append(
                OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)
            )
        return out.reply(call.token, OffsetCommitResponse(topics=topics))

    def takes(self, template: CommitRecordTemplate, api_version: int, monotonic_ms: int) -> bool:
        """Whether a commit from this template would be stored as it is; extends the session."""
        group = self._groups.get(template.group_id)
        if self._offsets.has_unstable(template.group_id) or check_commit(
            group, template.member_id, template.instance_id, template.generation, api_version
        ):
            return False
        if group is not None and template.member_id in group.members:
            group.members[template.member_id].beat(monotonic_ms)
        return True

    def template_of(self, request: OffsetCommitRequest) -> CommitRecordTemplate:
        """The template of a commit that was served; raises NoTemplate if it cannot be repeated."""
        metadata_max = self._settings.offset_metadata_bytes_max
        template = CommitRecordTemplate(request)
        if not template.places or any(
            len(metadata) > metadata_max for *_, metadata in template.places
        ):
            raise NoTemplate
        return template

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, call: Call) -> Result:
        """Store offsets that count once the transaction commits."""
        return commit_in_transaction(self._groups, self._settings, request, call)

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The committed offsets of a group: of the named partitions, or (no topics) of all."""
        group_id = request.group_id
        committed = self._offsets.of_group(group_id)
        if request.topics is None:
            wanted = [(topic, b"", list(commits)) for topic, commits in committed.items()]
        else:
            wanted = [(t.name, t.topic_id, t.partition_indexes) for t in request.topics]
        return OffsetFetchResponseGroup(
            group_id=group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        self._fetch_one(group_id, topic, partition, require_stable)
                        for partition in partitions
                    ],
                )
                for topic, topic_id, partitions in wanted
            ],
        )

    def _fetch_one(
        self, group_id: str, topic: str, partition: int, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_unstable(group_id, topic, partition):
            return no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        commit = self._offsets.get(group_id, topic, partition)
        if commit is None:
            return no_offset(partition)
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=commit.offset,
            committed_leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
        )

    def delete(self, request: OffsetDeleteRequest, call: Call) -> Result:
        """Delete offsets of topics that no member consumes."""
        out = Result()
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not State.EMPTY and not group.is_consumer:
            # Only a consumer group's subscriptions can be read; other groups may use any topic.
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            error = ErrorCode.NONE
        if error or group is None:
            return out.reply(call.token, OffsetDeleteResponse(error_code=error))
        topics = []
        for topic in request.topics:
            subscribed = group.subscribes_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = [partition.partition_index for partition in topic.partitions]
            if not subscribed:
                out.records.extend(
                    OffsetChange(group.group_id, topic.name, index, None)
                    for index in partitions
                    if self._offsets.has(group.group_id, topic.name, index)
                )
            topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                        for index in partitions
                    ],
                )
            )
        return out.reply(call.token, OffsetDeleteResponse(topics=topics))

    def forget_topic(self, topic: str) -> list[OffsetChange]:
        """Tombstones for all offsets of a deleted topic, also in open transactions.

        Otherwise a new topic of the same name would inherit them.
        """
        return [
            OffsetChange(group_id, name, partition, None)
            for group_id in sorted(self._offsets.groups_with_offsets())
            for name, partition in sorted(self._offsets.partitions(group_id))
            if name == topic
        ]


def check_commit(
    group: Group | None,
    member_id: str,
    instance_id: str | None,
    generation: int,
    api_version: int,
) -> ErrorCode:
    """Whether a group accepts this commit.

    A negative generation comes from an administrator or from a consumer that manages its own
    partitions: valid only for a group without members.
    """
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        if api_version >= GROUP_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    error = group.check(member_id, instance_id)
    if error:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return COMMIT_ANSWERS[group.state]


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The response to a commit of which nothing was stored."""
    return failed_response(request, OffsetCommitResponse, None, error)


def no_offset(partition: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    """The result for a partition without a committed offset, or with an error."""
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_EPOCH,
        metadata="",
        error_code=error,
    )
