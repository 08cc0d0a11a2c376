"""The simulation can fail: protocols that are broken on purpose are caught."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import pytest
from tests.dispatch.simulation.node import Node
from tests.dispatch.simulation.stage import play
from tests.dispatch.simulation.world import Violation

from headrace.dispatch.effects import ChangeToken, Commit, Effect, Probe
from headrace.dispatch.owned_partition import OwnedPartition, State
from headrace.dispatch.owner_machine import OwnerMachine
from headrace.dispatch.submitter_machine import SubmitterMachine
from headrace.dispatch.tokens.scheduler import Scheduler
from headrace.dispatch.tokens.store import Renew

SEEDS = 1_500

Patch = Callable[[pytest.MonkeyPatch], None]


def any_fence_is_accepted(patch: pytest.MonkeyPatch) -> None:
    record = OwnerMachine.record

    def lenient(self: OwnerMachine, partition: int, offset: int, fence: Any, job: Any) -> Any:
        mine = self.partitions.get(partition)
        if mine is not None and mine.state is State.IDLE and fence is not None:
            fence = mine.fence
        return record(self, partition, offset, fence, job)

    patch.setattr(OwnerMachine, "record", lenient)


def the_next_owner_does_not_wait_for_a_lease(patch: pytest.MonkeyPatch) -> None:
    take_over = OwnerMachine._take_over

    def hasty(
        self: OwnerMachine, mine: OwnedPartition, seen: Any, age_ms: int, effects: Any
    ) -> None:
        is_foreign = seen is not None and seen.fence.epoch != mine.epoch
        take_over(self, mine, None if is_foreign else seen, age_ms, effects)

    patch.setattr(OwnerMachine, "_take_over", hasty)


def a_young_store_is_believed(patch: pytest.MonkeyPatch) -> None:
    take_over = OwnerMachine._take_over

    def credulous(
        self: OwnerMachine, mine: OwnedPartition, seen: Any, age_ms: int, effects: Any
    ) -> None:
        take_over(self, mine, seen, self.limits.lease_ms, effects)

    patch.setattr(OwnerMachine, "_take_over", credulous)


def an_inherited_job_runs_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    checked, revoked, never = OwnerMachine.checked, OwnerMachine.revoked, 1 << 62

    def take_over(
        self: OwnerMachine, mine: OwnedPartition, seen: Any, age_ms: int, effects: Any
    ) -> None:
        if not (seen is not None and seen.is_leased) and age_ms >= self.limits.lease_ms:
            mine.is_free, mine.state = True, State.CHECKING
            self._check(mine, effects)

    def check(self: OwnerMachine, check: Any, is_settled: bool) -> Any:
        effects = checked(self, check, is_settled)
        mine = self.partitions.get(check.partition)
        if mine is not None:
            mine.renew_at_ms = never
        return [effect for effect in effects if not is_store_of(effect, Renew)]

    def revoke(self: OwnerMachine, partition: int) -> Any:
        mine = self.partitions.get(partition)
        effects = revoked(self, partition)
        is_bare = mine is not None and mine.renew_at_ms == never
        return [effect for effect in effects if not (is_bare and is_store_of(effect, Renew))]

    patch.setattr(OwnerMachine, "_take_over", take_over)
    patch.setattr(OwnerMachine, "checked", check)
    patch.setattr(OwnerMachine, "revoked", revoke)


def a_revoked_node_lets_its_lease_go(patch: pytest.MonkeyPatch) -> None:
    tick = OwnerMachine.tick

    def forgetful(self: OwnerMachine, now_ms: int) -> Any:
        left = {p.number for p in self.partitions.values() if p.state is State.LEFT}
        effects = tick(self, now_ms)
        return [effect for effect in effects if not is_store_of(effect, Renew, left)]

    patch.setattr(OwnerMachine, "tick", forgetful)


def waiting_for_a_lease_ends_it(patch: pytest.MonkeyPatch) -> None:
    revoked = OwnerMachine.revoked

    def rude(self: OwnerMachine, partition: int) -> Any:
        mine = self.partitions.get(partition)
        if mine is not None:
            mine.is_stored = True
        return revoked(self, partition)

    patch.setattr(OwnerMachine, "revoked", rude)


def a_partition_that_comes_back_forgets_its_job(patch: pytest.MonkeyPatch) -> None:
    assigned = OwnerMachine.assigned

    def amnesic(self: OwnerMachine, partition: int, *rest: int) -> Any:
        self.partitions.pop(partition, None)
        return assigned(self, partition, *rest)

    patch.setattr(OwnerMachine, "assigned", amnesic)


def what_is_settled_runs_again(patch: pytest.MonkeyPatch) -> None:
    checked = OwnerMachine.checked
    patch.setattr(OwnerMachine, "checked", lambda self, check, settled: checked(self, check, False))


def an_epoch_lasts_for_ever(patch: pytest.MonkeyPatch) -> None:
    assigned = OwnerMachine.assigned

    def timeless(self: OwnerMachine, partition: int, epoch: int, *rest: int) -> Any:
        return assigned(self, partition, 1, *rest)

    patch.setattr(OwnerMachine, "assigned", timeless)


def commits_do_not_wait_for_outcomes(patch: pytest.MonkeyPatch) -> None:
    def ahead(self: OwnerMachine, mine: OwnedPartition, effects: Any) -> None:
        if mine.position > mine.committed:
            mine.committed = mine.position
            effects.append(Commit(mine.number, mine.position))

    patch.setattr(OwnerMachine, "_commit", ahead)


def nothing_is_healed(patch: pytest.MonkeyPatch) -> None:
    miss = OwnerMachine._miss

    def resigned(self: OwnerMachine, mine: OwnedPartition, cure: Any, effects: Any) -> None:
        if not isinstance(cure, Probe):
            miss(self, mine, cure, effects)

    patch.setattr(OwnerMachine, "_miss", resigned)


def a_lost_lease_counts_as_kept(patch: pytest.MonkeyPatch) -> None:
    heal = OwnerMachine._heal

    def trusting(self: OwnerMachine, mine: OwnedPartition, seen: Any, effects: Any) -> None:
        if seen is None or seen.state != "out":
            heal(self, mine, seen, effects)

    patch.setattr(OwnerMachine, "_heal", trusting)


def records_without_a_value_are_ignored(patch: pytest.MonkeyPatch) -> None:
    record = OwnerMachine.record

    def deaf(self: OwnerMachine, partition: int, offset: int, fence: Any, job: Any) -> Any:
        return [] if job is None else record(self, partition, offset, fence, job)

    patch.setattr(OwnerMachine, "record", deaf)


def a_refused_job_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    outcome = SubmitterMachine.outcome

    def final(self: SubmitterMachine, job: str, kind: Any, token: Any) -> bool:
        return kind != "refused" and outcome(self, job, kind, token)

    patch.setattr(SubmitterMachine, "outcome", final)


def a_failed_sending_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SubmitterMachine, "again", lambda self, job, token: None)


def a_waiting_node_asks_only_once(patch: pytest.MonkeyPatch) -> None:
    def silent(self: Node) -> None:
        self._apply(self.owner.tick(self.world.now_ms))
        self.later(100, self._tick)

    patch.setattr(Node, "_tick", silent)


def newcomers_go_first(patch: pytest.MonkeyPatch) -> None:
    ask = Scheduler.ask

    def eager(self: Scheduler, node: str, want: int, weight: int) -> None:
        is_new = node not in self.waiters
        ask(self, node, want, weight)
        if is_new and node in self.waiters:
            self.waiters[node].pass_ = 0

    patch.setattr(Scheduler, "ask", eager)


def the_greediest_goes_first(patch: pytest.MonkeyPatch) -> None:
    def rank(self: Scheduler, node: str) -> tuple[int, int]:
        return -self.waiters[node].want, 0

    patch.setattr(Scheduler, "_fair_rank", rank)


def the_token_goes_back_before_the_work_ends(patch: pytest.MonkeyPatch) -> None:
    run = OwnerMachine._run

    def early(self: OwnerMachine, mine: OwnedPartition, *args: Any, **options: Any) -> None:
        run(self, mine, *args, **options)
        mine.running, mine.state = None, State.IDLE
        self._put(mine, args[2])

    patch.setattr(OwnerMachine, "_run", early)


def the_copy_of_a_record_is_refused(patch: pytest.MonkeyPatch) -> None:
    record = OwnerMachine.record

    def strict(self: OwnerMachine, partition: int, *rest: Any) -> Any:
        mine = self.partitions.get(partition)
        if mine is not None:
            mine.last = None
        return record(self, partition, *rest)

    patch.setattr(OwnerMachine, "record", strict)


def a_claim_does_not_overrule_old_leases(patch: pytest.MonkeyPatch) -> None:
    take_over = OwnerMachine._take_over

    def modest(self: OwnerMachine, mine: OwnedPartition, *rest: Any) -> None:
        mine.is_claimed = False
        take_over(self, mine, *rest)

    patch.setattr(OwnerMachine, "_take_over", modest)


def what_the_last_owner_left_is_skipped(patch: pytest.MonkeyPatch) -> None:
    assigned = OwnerMachine.assigned

    def fresh(self: OwnerMachine, partition: int, epoch: int, next_offset: int, end: int) -> Any:
        return assigned(self, partition, epoch, end, end)

    patch.setattr(OwnerMachine, "assigned", fresh)


def is_store_of(effect: Effect, kind: type, partitions: Container[int] | None = None) -> bool:
    """Whether it is such a change, of one of these partitions."""
    if not isinstance(effect, ChangeToken) or not isinstance(effect.change, kind):
        return False
    return partitions is None or effect.change.partition in partitions


def play_all(seeds: int) -> None:
    for seed in range(seeds):
        play(seed)


MUTANTS: list[Patch] = [
    any_fence_is_accepted,
    the_next_owner_does_not_wait_for_a_lease,
    a_young_store_is_believed,
    an_inherited_job_runs_without_a_lease,
    a_revoked_node_lets_its_lease_go,
    waiting_for_a_lease_ends_it,
    a_partition_that_comes_back_forgets_its_job,
    what_is_settled_runs_again,
    an_epoch_lasts_for_ever,
    commits_do_not_wait_for_outcomes,
    nothing_is_healed,
    a_lost_lease_counts_as_kept,
    records_without_a_value_are_ignored,
    a_refused_job_is_not_sent_again,
    a_failed_sending_is_forgotten,
    a_waiting_node_asks_only_once,
    newcomers_go_first,
    the_greediest_goes_first,
    the_token_goes_back_before_the_work_ends,
    what_the_last_owner_left_is_skipped,
    the_copy_of_a_record_is_refused,
    a_claim_does_not_overrule_old_leases,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_protocol_is_caught(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Violation):
        play_all(SEEDS)
