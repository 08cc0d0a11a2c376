"""The committed offsets of a coordinator's groups, and which of them have expired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from headrace.coordinator.commit_record_templates import CommitRecordTemplate
from headrace.coordinator.group import Group
from headrace.coordinator.pending_values import PendingValues
from headrace.coordinator.records import NO_TIMESTAMP, Commit, OffsetChange
from headrace.coordinator.states import State

NO_OFFSETS: Mapping[str, Mapping[int, Commit]] = {}
NO_PRODUCER_ID = -1

# A commit's template, its offsets, its leader epochs, and its time.
Folded: TypeAlias = tuple[CommitRecordTemplate, Sequence[int], Sequence[int], int]


class Offsets:
    """Commits by group, topic and partition; changed only by replay."""

    def __init__(self) -> None:
        self._commits: dict[str, dict[str, dict[int, Commit]]] = {}
        self._pending: PendingValues[tuple[str, str, int], Commit] = PendingValues()
        # The last commit from a template of each group, not yet applied: most are replaced by the
        # next one before they are read.
        self._folded: dict[str, Folded] = {}

    def get(self, group_id: str, topic: str, partition: int) -> Commit | None:
        """The commit of a partition."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Commit]]:
        """The commits of a group, by topic and partition."""
        if group_id in self._folded:
            self._unfold(group_id)
        return self._commits.get(group_id, NO_OFFSETS)

    def groups(self) -> Iterator[str]:
        """The groups with committed offsets."""
        for group_id in tuple(self._folded):
            self._unfold(group_id)
        return iter(self._commits)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a partition has a committed offset, or a pending one."""
        return self.get(group_id, topic, partition) is not None or self.is_unstable(
            group_id, topic, partition
        )

    def partitions(self, group_id: str) -> set[tuple[str, int]]:
        """Every topic and partition with a committed or pending offset of a group."""
        partitions = {
            (topic, partition)
            for topic, commits in self.of_group(group_id).items()
            for partition in commits
        }
        partitions.update(
            (topic, index) for group, topic, index in self._pending if group == group_id
        )
        return partitions

    def groups_with_offsets(self) -> set[str]:
        """The groups with committed or pending offsets."""
        return {*self.groups(), *(group_id for group_id, _, _ in self._pending)}

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset for the partition."""
        return bool(self._pending) and (group_id, topic, partition) in self._pending

    def has_unstable(self, group_id: str) -> bool:
        """Whether an open transaction has committed an offset of the group."""
        return bool(self._pending) and any(key[0] == group_id for key in self._pending)

    def replay(self, change: OffsetChange, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record of the log; a producer id means that it is part of a transaction."""
        group_id, topic, partition, commit = change
        if commit is not None and producer_id != NO_PRODUCER_ID:
            self._pending.put(producer_id, (group_id, topic, partition), commit)
            return
        if self._pending:
            self._pending.settle((group_id, topic, partition))
        if commit is None:
            self._remove(group_id, topic, partition)
        else:
            self._put(group_id, topic, partition, commit)

    def replay_from_template(
        self,
        template: CommitRecordTemplate,
        offsets: Sequence[int],
        epochs: Sequence[int],
        now_ms: int,
    ) -> None:
        """Apply a commit from a template; its group must have no pending offsets."""
        group_id = template.group_id
        folded = self._folded.get(group_id)
        if folded is not None and folded[0] is not template:
            self._unfold(group_id)
        self._folded[group_id] = (template, offsets, epochs, now_ms)

    def _unfold(self, group_id: str) -> None:
        template, offsets, epochs, now_ms = self._folded.pop(group_id)
        for (topic, partition, metadata), offset, epoch in zip(
            template.places, offsets, epochs, strict=True
        ):
            self._put(group_id, topic, partition, Commit(offset, epoch, metadata, now_ms))

    def end_transaction(self, producer_id: int, *, committed: bool) -> set[str]:
        """Apply a transaction marker of the log; returns the groups whose offsets changed."""
        decided = self._pending.end(producer_id, committed=committed)
        for (group_id, topic, partition), commit in decided.items():
            self._put(group_id, topic, partition, commit)
        return {group_id for group_id, _, _ in decided}

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[OffsetChange]:
        """Tombstones for the expired offsets of a group.

        An empty group's offsets are kept for `retention_ms` from the time it became empty
        (KIP-211). A live consumer group's are kept while it subscribes to the topic, and after
        that, like those of a group that only stores offsets, for `retention_ms` from their commit.
        """
        if group.protocol_type is not None and group.state is State.EMPTY:
            since_ms = group.empty_since_ms
        elif group.protocol_type is None or (
            group.is_consumer and group.state is State.STABLE and group.subscribed is not None
        ):
            since_ms = None
        else:
            return []
        return [
            OffsetChange(group.group_id, topic, partition, None)
            for topic, commits in self.of_group(group.group_id).items()
            if not group.subscribes_to(topic)
            for partition, commit in commits.items()
            if _is_expired(commit, since_ms, now_ms, retention_ms)
            and not self.is_unstable(group.group_id, topic, partition)
        ]

    def _put(self, group_id: str, topic: str, partition: int, commit: Commit) -> None:
        if group_id in self._folded:
            self._unfold(group_id)
        topics = self._commits.get(group_id)
        if topics is None:
            topics = self._commits[group_id] = {}
        commits = topics.get(topic)
        if commits is None:
            commits = topics[topic] = {}
        commits[partition] = commit

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        if group_id in self._folded:
            self._unfold(group_id)
        topics = self._commits.get(group_id)
        commits = topics.get(topic) if topics is not None else None
        if topics is None or commits is None:
            return
        commits.pop(partition, None)
        if not commits:
            del topics[topic]
            if not topics:
                del self._commits[group_id]


def _is_expired(commit: Commit, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if commit.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= commit.expire_timestamp_ms
    base_ms = commit.commit_timestamp_ms if since_ms is None else since_ms
    return now_ms - base_ms >= retention_ms
