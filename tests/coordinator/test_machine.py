"""Random histories of one group, with crashes and full disks, and what must hold in all of them."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinator.harness import GROUP, Harness, Waiting, subscription

from headrace.coordinator.effects import Cause, Result, TimerKey, TimerKind
from headrace.coordinator.group import Group
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.errors import ErrorCode

PARTITIONS = 6
INSTANCES = (None, None, "a", "b")
PROTOCOLS: tuple[dict[str, bytes], ...] = (
    {"range": subscription("t")},
    {"sticky": subscription("t"), "range": subscription("t")},
    {"range": subscription("t", "u")},
)
SESSION_MS = 10_000
REBALANCE_MS = 30_000

picks = st.integers(0, 50)


class GroupHistory(RuleBasedStateMachine):
    """Clients that do anything at any time, sensible or not."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([3, 100]))
    def begin(self, delay_ms: int, size_max: int) -> None:
        self.harness = Harness(
            GroupSettings(initial_rebalance_delay_ms=delay_ms, group_size_max=size_max)
        )
        # Every id that a client ever learned, with its instance.
        self.ids: list[tuple[str, str | None]] = []
        self.joins: list[tuple[Waiting, str | None]] = []
        self.syncs: list[tuple[Waiting, str, str | None, int]] = []
        # Who owns a partition in a generation: an instance or a member.
        self.owners: dict[tuple[int, int], str] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        # What was acknowledged when the log had this many records.
        self.history: dict[int, dict[tuple[str, int], int]] = {0: {}}
        self.stored_generation = 0
        self.shared_generation = 0

    # What clients do.

    def member(self, pick: int) -> tuple[str, str | None]:
        return self.ids[pick % len(self.ids)] if self.ids else ("stranger", None)

    def generation(self, pick: int) -> int:
        group = self.harness.coordinator.groups.get(GROUP)
        right = group.generation if group is not None else 0
        return right if pick % 8 else right + pick % 3 - 1

    @rule(
        pick=picks,
        new=st.booleans(),
        instance=st.sampled_from(INSTANCES),
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([0, 3, 4, 8, 9]),
    )
    def join(
        self,
        pick: int,
        new: bool,
        instance: str | None,
        protocols: dict[str, bytes],
        version: int,
    ) -> None:
        member_id, known_instance = ("", instance) if new else self.member(pick)
        instance = instance if new else known_instance
        waiting = self.harness.join(
            member_id,
            instance=instance,
            protocols=protocols,
            version=version,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.joins.append((waiting, instance))
        self.hear()

    @rule(
        newcomers=st.integers(0, 3),
        absent=st.integers(-1, 3),
        silent=st.integers(-1, 3),
        seed=picks,
    )
    def round(self, newcomers: int, absent: int, silent: int, seed: int) -> None:
        """Clients that know what they do go through a round; one may be missing at either end."""
        for number in range(newcomers):
            instance = INSTANCES[(seed + number) % len(INSTANCES)]
            protocols = PROTOCOLS[seed % 2]
            self.join(seed, True, instance, protocols, 9)
        for number, (member_id, instance) in enumerate(list(self.ids)):
            group = self.harness.coordinator.groups.get(GROUP)
            known = group is not None and (member_id in group.members or member_id in group.pending)
            if known and number != absent:
                place = self.ids.index((member_id, instance))
                self.join(place, False, None, PROTOCOLS[seed % 2], 9)
        self.time_passes(3_000)
        for place, (member_id, _) in enumerate(list(self.ids)):
            group = self.harness.coordinator.groups.get(GROUP)
            if group is not None and member_id in group.members and place != silent:
                self.sync(place, 1, seed)

    @rule(pick=picks, generation=picks, seed=picks)
    def sync(self, pick: int, generation: int, seed: int) -> None:
        member_id, instance = self.member(pick)
        asked = self.generation(generation)
        group = self.harness.coordinator.groups.get(GROUP)
        members = sorted(group.members) if group is not None else []
        # Each partition to one member, otherwise than the last time the leader was asked.
        shares = {member: bytearray() for member in members}
        chance = random.Random(seed)
        for partition in range(PARTITIONS if members else 0):
            shares[chance.choice(members)].append(partition)
        waiting = self.harness.sync(
            member_id, asked, {m: bytes(s) for m, s in shares.items()}, instance=instance
        )
        self.syncs.append((waiting, member_id, instance, asked))
        self.hear()

    @rule(pick=picks, generation=picks)
    def heartbeat(self, pick: int, generation: int) -> None:
        member_id, instance = self.member(pick)
        self.harness.heartbeat(member_id, self.generation(generation), instance=instance)

    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        if not self.harness.disk_is_full:
            self.harness.leave(self.member(pick))
        self.hear()

    @rule(
        pick=picks,
        generation=picks,
        simple=st.booleans(),
        partition=st.integers(0, 3),
        offset=st.integers(0, 1000),
    )
    def commit(self, pick: int, generation: int, simple: bool, partition: int, offset: int) -> None:
        if self.harness.disk_is_full:
            return
        member_id, instance = ("", None) if simple else self.member(pick)
        asked = -1 if simple else self.generation(generation)
        answer = self.harness.commit(
            {("t", partition): offset}, member_id, asked, instance=instance
        )
        if answer == [ErrorCode.NONE]:
            self.acknowledged[("t", partition)] = offset

    # What administrators do.

    @rule(instance=st.sampled_from(["a", "b", "nobody"]))
    def evict(self, instance: str) -> None:
        """A static member is removed by the name that its administrator knows."""
        if self.harness.disk_is_full:
            return
        group = self.harness.coordinator.groups.get(GROUP)
        known = group is not None and instance in group.instances
        expected = ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        assert self.harness.leave(("", instance)) == [expected]
        self.hear()

    @rule()
    def delete(self) -> None:
        if self.harness.disk_is_full:
            return
        group = self.harness.coordinator.groups.get(GROUP)
        error, records = self.harness.coordinator.delete(GROUP)
        if group is None:
            assert error is ErrorCode.GROUP_ID_NOT_FOUND
        elif group.members or group.state is not State.EMPTY:
            assert error is ErrorCode.NON_EMPTY_GROUP
        else:
            assert error is ErrorCode.NONE
            self.harness.carry_out(Result(records=records))
            self.forget()

    @rule(size_max=st.sampled_from([1, 3, 100]))
    def restart_with_another_limit(self, size_max: int) -> None:
        """A group that is larger than the new limit has to rebalance, and shrinks by that."""
        self.harness.settings = replace(self.harness.settings, group_size_max=size_max)
        self.crash()
        group = self.harness.coordinator.groups.get(GROUP)
        if group is not None and len(group.members) > size_max:
            assert group.state is State.PREPARING
            assert self.harness.causes[-1] is Cause.GROUP_TOO_LARGE

    @rule()
    def nobody_comes_for_long(self) -> None:
        """Members are gone, then offsets past their retention, then the group itself."""
        if self.harness.disk_is_full:
            return
        self.time_passes(self.harness.settings.offsets_retention_ms + 1_000_000)
        for result in self.harness.coordinator.expire(self.harness.now):
            self.harness.carry_out(result)
        assert GROUP not in self.harness.coordinator.groups
        self.forget()

    def forget(self) -> None:
        """The group is gone; one of the same name counts from the beginning."""
        self.owners.clear()
        self.acknowledged.clear()
        self.stored_generation = self.shared_generation = 0

    # What happens to them.

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 9_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.harness.advance(ms)
        self.hear()

    @rule()
    def crash(self) -> None:
        self.harness.disk_is_full = False
        self.harness.restart()
        # Whoever waited is gone with their connections.
        self.joins.clear()
        self.syncs.clear()

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        if not full and self.harness.disk_is_full:
            # Those whose answers were swallowed would have been refused.
            self.joins = [j for j in self.joins if self.is_parked(j[0])]
            self.syncs = [s for s in self.syncs if self.is_parked(s[0])]
        self.harness.disk_is_full = full

    def is_parked(self, waiting: Waiting) -> bool:
        group = self.harness.coordinator.groups.get(GROUP)
        return group is not None and waiting in (*group.joins.values(), *group.syncs.values())

    def hear(self) -> None:
        """Take note of the answers that came."""
        for join, instance in self.joins:
            if not join.waits:
                answer = join.joined
                if answer.member_id and (answer.member_id, instance) not in self.ids:
                    self.ids.append((answer.member_id, instance))
        self.joins = [entry for entry in self.joins if entry[0].waits]
        for sync, member_id, instance, generation in self.syncs:
            if not sync.waits and sync.error is ErrorCode.NONE:
                assert generation >= self.shared_generation, "generations never go back"
                self.shared_generation = generation
                for partition in sync.synced.assignment:
                    owner = self.owners.setdefault((generation, partition), instance or member_id)
                    assert owner == (instance or member_id), "one owner per partition"
        self.syncs = [entry for entry in self.syncs if entry[0].waits]

    # What must hold.

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        recovered = self.harness.recovered()
        assert recovered.stored() == self.harness.coordinator.stored()

    @invariant()
    def acknowledged_commits_are_in_every_later_log(self) -> None:
        length = len(self.harness.log)
        self.history[length] = dict(self.acknowledged)
        for prefix in (length, max(n for n in self.history if n <= length // 2)):
            offsets = self.harness.recovered(prefix).offsets.of_group(GROUP)
            found = {
                (topic, partition): commit.offset
                for topic, commits in offsets.items()
                for partition, commit in commits.items()
            }
            assert found == self.history[prefix]

    @invariant()
    def stored_generations_never_go_back(self) -> None:
        group = self.harness.coordinator.groups.get(GROUP)
        if group is not None and group.stored is not None:
            assert group.stored.generation >= self.stored_generation
            self.stored_generation = group.stored.generation

    @invariant()
    def every_rebalance_has_its_reason(self) -> None:
        assert len(self.harness.causes) == len(self.harness.rebalances)
        assert all(self.harness.rebalances)

    @invariant()
    def the_group_is_in_order(self) -> None:
        group = self.harness.coordinator.groups.get(GROUP)
        if group is not None:
            check_order(group)
            check_protocol(group)
            check_timers(group, self.harness)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.disk(False)
        self.harness.advance(1_000_000)
        assert not [w for w, _ in self.joins if w.waits], "nobody waits for ever"
        assert not [s for s in self.syncs if s[0].waits], "nobody waits for ever"
        group = self.harness.coordinator.groups.get(GROUP)
        assert group is None or group.state is State.EMPTY, "silent members are gone"


def check_order(group: Group) -> None:
    """What holds of a group in any state."""
    assert set(group.joins) <= set(group.members)
    assert set(group.syncs) <= set(group.members)
    assert group.unsynced <= set(group.members)
    assert not group.pending & set(group.members)
    assert not group.joins or group.state is State.PREPARING
    assert not group.syncs or group.state is State.COMPLETING
    assert (group.leader in group.members) if group.members else group.leader is None
    assert group.instances == {
        m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
    }
    if group.state is State.EMPTY:
        assert not group.members
    if group.state is State.STABLE:
        stored = group.stored
        assert stored is not None
        assert stored.generation == group.generation
        assert stored.leader == group.leader
        assert stored.members == tuple(m.stored(group.protocol) for m in group.members.values())


def check_protocol(group: Group) -> None:
    """A generation's protocol is one that all members support, and none has more votes."""
    if group.state not in (State.COMPLETING, State.STABLE):
        return
    lists = [[name for name, _ in member.protocols] for member in group.members.values()]
    common = [name for name in lists[0] if all(name in names for names in lists)]
    votes = [next(name for name in names if name in common) for names in lists]
    assert group.protocol in common
    assert votes.count(group.protocol) == max(map(votes.count, common))


def check_timers(group: Group, harness: Harness) -> None:
    """Nothing waits without a timer that will check it again."""
    timers = harness.timers
    for member_id in (*group.members, *group.pending):
        assert TimerKey(TimerKind.SESSION, GROUP, member_id) in timers
    for member in group.members.values():
        assert member.alarm_ms is not None
        assert member.alarm_ms <= max(member.deadline_ms, harness.now.monotonic_ms)
    if group.state is State.PREPARING:
        assert TimerKey(TimerKind.JOIN, GROUP) in timers
    if group.state is State.COMPLETING and group.unsynced:
        assert TimerKey(TimerKind.SYNC, GROUP) in timers


TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
