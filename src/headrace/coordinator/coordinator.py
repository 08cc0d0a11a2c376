"""The groups of one partition of `__consumer_offsets`: requests in, effects out, replay.

The coordinator is pure. Its stored state is a function of the log: `replay` is the only way it
changes, while serving as well as after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace.coordinator.classic import ClassicGroups
from headrace.coordinator.commit_record_templates import CommitRecordTemplate
from headrace.coordinator.commits import Commits
from headrace.coordinator.effects import Cause, Now, Result, TimerKey, TimerKind
from headrace.coordinator.group import Group
from headrace.coordinator.offsets import NO_PRODUCER_ID, Offsets
from headrace.coordinator.rebalances import Rebalances, refused_join
from headrace.coordinator.records import Change, Commit, Generation, GroupChange, OffsetChange
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import Event, State
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.errors import ErrorCode


class GroupCoordinator:
    """All groups of one partition.

    `classic` and `commits` serve requests; what they return must be carried out in the order of
    `effects`, each result's records replayed before the next request to the same groups.
    """

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._settings = settings
        self._rebalances = Rebalances(settings)
        self.classic = ClassicGroups(self.groups, self._rebalances, settings, new_id)
        self.commits = Commits(self.groups, self.offsets, settings)

    def replay(self, change: Change, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record of the log."""
        if isinstance(change, OffsetChange):
            self.offsets.replay(change, producer_id)
            if change.commit is not None and change.group_id not in self.groups:
                self.groups[change.group_id] = Group(change.group_id)
        elif change.generation is not None:
            group = self.groups.get(change.group_id)
            if group is None:
                group = self.groups[change.group_id] = Group(change.group_id)
            group.install(change.generation)
        else:
            removed = self.groups.pop(change.group_id, None)
            if removed is not None and removed.state is State.EMPTY:
                removed.move(Event.REMOVED)
            if self.offsets.of_group(change.group_id):
                self.groups[change.group_id] = Group(change.group_id)

    def replay_from_template(
        self,
        template: CommitRecordTemplate,
        offsets: Sequence[int],
        epochs: Sequence[int],
        now_ms: int,
    ) -> None:
        """Apply a commit from a template that is in the log."""
        self.offsets.replay_from_template(template, offsets, epochs, now_ms)
        if template.group_id not in self.groups:
            self.groups[template.group_id] = Group(template.group_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker of the log."""
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            if group_id not in self.groups:
                self.groups[group_id] = Group(group_id)

    def stored(self) -> tuple[dict[str, Generation], dict[str, Mapping[str, Mapping[int, Commit]]]]:
        """The stored state: generations and offsets by group."""
        generations = {
            group_id: group.stored
            for group_id, group in self.groups.items()
            if group.stored is not None
        }
        offsets = {group_id: self.offsets.of_group(group_id) for group_id in self.offsets.groups()}
        return generations, offsets

    def resume(self, now: Now) -> Result:
        """Start serving after replay: sessions start again, groups above the limit shrink."""
        out = Result()
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalances.touch(group, member, member.session_timeout_ms, now, out)
            if len(group.members) > self._settings.group_size_max:
                reason = f"{len(group.members)} members are more than group.max.size"
                self._rebalances.prepare(group, Cause.GROUP_TOO_LARGE, reason, now, out)
        return out

    def unload(self, error: ErrorCode) -> Result:
        """Stop serving: every waiting member gets `error`."""
        out = Result()
        for group in self.groups.values():
            for member_id, token in group.joins.items():
                out.reply(token, refused_join(error, member_id))
            for token in group.syncs.values():
                out.reply(token, SyncGroupResponse(error_code=error))
            group.joins.clear()
            group.syncs.clear()
            group.move(Event.UNLOADED)
        self.groups.clear()
        return out

    def on_timer(self, key: TimerKey, now: Now) -> Result:
        """Handle a timer; its reason may be gone by now."""
        out = Result()
        group = self.groups.get(key.group_id)
        if group is None:
            return out
        if key.kind is TimerKind.SESSION:
            self._rebalances.on_session_timer(group, key.member_id, now, out)
        elif key.kind is TimerKind.JOIN:
            self._rebalances.on_join_timer(group, now, out)
        else:
            self._rebalances.on_sync_timer(group, now, out)
        return out

    def expire(self, now: Now) -> Iterator[Result]:
        """Remove expired offsets, and empty groups without offsets."""
        for group in list(self.groups.values()):
            out = Result()
            expired = self.offsets.expired(group, now.wall_ms, self._settings.offsets_retention_ms)
            out.records.extend(expired)
            kept = sum(map(len, self.offsets.of_group(group.group_id).values())) - len(expired)
            if kept == 0 and self._is_disposable(group):
                out.records.append(GroupChange(group.group_id, None))
            if out.records:
                yield out

    def _is_disposable(self, group: Group) -> bool:
        return (
            group.state is State.EMPTY
            and not group.pending
            and not self.offsets.has_unstable(group.group_id)
        )

    def delete(self, group_id: str) -> tuple[ErrorCode, list[Change]]:
        """Delete a group; returns an error, or the tombstones."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        # Pending offsets of open transactions go too, or their commit would bring the group back.
        records: list[Change] = [
            OffsetChange(group_id, topic, partition, None)
            for topic, partition in sorted(self.offsets.partitions(group_id))
        ]
        records.append(GroupChange(group_id, None))
        return ErrorCode.NONE, records
