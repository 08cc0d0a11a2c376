"""The owner's side of the protocol, pure: partitions are assigned, jobs arrive, tokens go out.

A node has one. Events go in as method calls with the time; effects come out in the order in which
they must begin. The token goes back when the worker ends, without waiting for the outcome to be
durable: only one job at a time runs anyway, and only the commit needs the outcome.
"""

from __future__ import annotations

from collections import Counter

from headrace.dispatch.effects import (
    ChangeToken,
    Check,
    Claim,
    Commit,
    Effect,
    Probe,
    Query,
    Refuse,
    Run,
    Seek,
)
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.owned_partition import Event, OwnedPartition, Running, State, moved
from headrace.dispatch.tokens.store import Answer, Fence, Put, Renew, Revoke, TokenView

Effects = list[Effect]


class OwnerMachine:
    """The partitions of one node."""

    def __init__(self, limits: DispatchLimits) -> None:
        self.limits = limits
        self.counts: Counter[str] = Counter()
        self.partitions: dict[int, OwnedPartition] = {}
        # Offsets whose outcomes are on their way to TOPIC.done; they outlive an assignment.
        self._unwritten: dict[int, set[int]] = {}
        self._incarnation = ""
        self._check_at_ms = 0

    @property
    def running(self) -> dict[int, Running]:
        """The jobs that run at this node, by partition."""
        return {p.number: p.running for p in self.partitions.values() if p.running}

    def assigned(self, partition: int, epoch: int, next_offset: int, end_offset: int) -> Effects:
        """The partition is ours from `next_offset` on; its log ends at `end_offset`."""
        before = self.partitions.get(partition)
        if before is not None and before.state is not State.LEFT:
            # The client did not report the loss in between.
            self._leave(before)
        fence = Fence(epoch, next_offset)
        mine = OwnedPartition(partition, epoch, next_offset, end_offset, fence)
        self.partitions[partition] = mine
        if before is not None and before.running is not None:
            mine.state = moved(before.state, Event.ASSIGNED)
            mine.running, mine.last = before.running, before.last
            mine.open.add(before.running.offset)
            return self._end(mine) if before.is_ended else []
        mine.state = moved(State.GONE, Event.ASSIGNED)
        effects: Effects = []
        self._go_on(mine, effects)
        return effects

    def revoked(self, partition: int) -> Effects:
        """The partition is no longer ours; a job that runs goes on."""
        mine = self.partitions.get(partition)
        if mine is None or mine.state is State.LEFT:
            return []
        self._leave(mine)
        if mine.running is not None:
            # The next owner checks for this lease very soon.
            return [ChangeToken(Renew(partition, mine.running.fence))]
        del self.partitions[partition]
        # If this owner has only waited for an earlier owner's lease, that lease must stay.
        return [ChangeToken(Revoke(partition, mine.fence))] if mine.is_stored else []

    def record(
        self, partition: int, offset: int, fence: Fence | None, job_id: str | None
    ) -> Effects:
        """A record was read.

        A record without a value has no id and only gives the token back. One that no node has sent
        has an empty id and is refused.
        """
        mine = self.partitions.get(partition)
        if mine is None or mine.state is State.LEFT or offset < mine.position:
            return []
        mine.position = offset + 1
        effects: Effects = []
        if mine.state is State.FENCED:
            return effects
        if fence is not None and (fence, job_id) == mine.last and offset not in mine.open:
            # A retried send left it; a refusal would make the submitter send it once more.
            # Its commit waits for the outcome of the first.
            self.counts["copies"] += 1
        elif offset < mine.inherited_end:
            self._inherit(mine, offset, job_id, effects)
        elif job_id is None:
            if mine.state is State.IDLE:
                self.counts["given back by a record"] += 1
                self._put(mine, effects)
        elif mine.newer is not None:
            return effects
        elif fence is not None and fence > mine.fence:
            mine.newer = offset
        elif mine.state is State.IDLE and fence == mine.fence:
            mine.state = moved(mine.state, Event.JOB)
            mine.last = (fence, job_id)
            self._run(mine, offset, job_id, effects, is_inherited=False)
        else:
            self._refuse(mine, offset, job_id, effects)
        self._go_on(mine, effects)
        return effects

    def finished(self, partition: int, offset: int) -> Effects:
        """The worker ended, with or without an error; its outcome is being written."""
        mine = self.partitions.get(partition)
        self._unwritten.setdefault(partition, set()).add(offset)
        if mine is None or mine.running is None or mine.running.offset != offset:
            return []
        if mine.state is State.LEFT:
            # The next owner looks up the outcome as soon as the lease is gone.
            mine.is_ended = True
            return []
        return self._end(mine)

    def written(self, partition: int, offset: int) -> Effects:
        """The outcome or refusal of this record is durable."""
        unwritten = self._unwritten.get(partition)
        if unwritten is not None:
            unwritten.discard(offset)
            if not unwritten:
                del self._unwritten[partition]
        mine = self.partitions.get(partition)
        if mine is None:
            return []
        if mine.state is State.LEFT:
            is_last = mine.is_ended and mine.running is not None and mine.running.offset == offset
            return self._end(mine) if is_last else []
        mine.open.discard(offset)
        effects: Effects = []
        self._commit(mine, effects)
        return effects

    def checked(self, check: Check, is_settled: bool) -> Effects:
        """The answer to a `Check`."""
        partition, offset = check.partition, check.offset
        mine = self.partitions.get(partition)
        if mine is None or mine.state is not State.CHECKING or mine.epoch != check.epoch:
            return []
        if mine.inherited[0][0] != offset:
            return []
        effects: Effects = []
        _, job_id = mine.inherited.popleft()
        if is_settled:
            mine.state = moved(mine.state, Event.SETTLED)
            mine.open.discard(offset)
        else:
            mine.state = moved(mine.state, Event.UNSETTLED)
            mine.fence = Fence(mine.epoch, offset)
            self.counts["inherited"] += 1
            self._run(mine, offset, job_id, effects, is_inherited=True)
            effects.append(ChangeToken(Renew(partition, mine.fence)))
        self._go_on(mine, effects)
        return effects

    def claimed(self, partition: int) -> Effects:
        """The group has accepted our commit: the partition is ours, whatever fence was found."""
        mine = self.partitions.get(partition)
        if mine is None or mine.state not in (State.FENCED, State.IDLE, State.WAITING):
            return []
        self.counts["claimed"] += 1
        mine.is_claimed = True
        effects: Effects = []
        if mine.state is State.IDLE:
            self._put(mine, effects)
            return effects
        if mine.state is State.WAITING:
            return [Query(partition)]
        mine.state = moved(mine.state, Event.CLAIMED)
        # Records since then are handled like those of an earlier owner: they run unless settled.
        assert mine.newer is not None
        mine.inherited_end = mine.position
        mine.position = mine.newer
        mine.newer, mine.is_free = None, False
        effects.append(Seek(partition, mine.position))
        return effects

    def answered(self, answer: Answer) -> Effects:
        """The token store has answered an exchange."""
        effects: Effects = []
        if answer.incarnation != self._incarnation:
            if self._incarnation:
                self.counts["stores lost"] += 1
                self._rebuild(effects)
            self._incarnation = answer.incarnation
        for partition, view in answer.views.items():
            mine = self.partitions.get(partition)
            if mine is None:
                continue
            if mine.state is State.WAITING:
                self._take_over(mine, view, answer.age_ms, effects)
            elif mine.state is State.IDLE:
                self._heal(mine, view, effects)
        return effects

    def tick(self, now_ms: int) -> Effects:
        """Renew leases and check tokens; called every `tick_ms`."""
        effects: Effects = []
        is_time_to_check = now_ms >= self._check_at_ms
        if is_time_to_check:
            self._check_at_ms = now_ms + self.limits.heal_interval_ms
        for mine in self.partitions.values():
            if mine.running is not None:
                if now_ms >= mine.renew_at_ms:
                    mine.renew_at_ms = now_ms + self.limits.renew_ms
                    effects.append(ChangeToken(Renew(mine.number, mine.running.fence)))
            elif mine.state is State.WAITING:
                effects.append(Query(mine.number))
            elif is_time_to_check:
                self._check_on(mine, effects)
        return effects

    def _take_over(
        self, mine: OwnedPartition, view: TokenView | None, store_age_ms: int, effects: Effects
    ) -> None:
        """Take a lease before an earlier owner's job is run here."""
        if view is not None and view.is_leased:
            if view.fence.epoch == mine.epoch:
                mine.is_free = True
                mine.state = moved(mine.state, Event.FREE)
                self._check(mine, effects)
        elif store_age_ms >= self.limits.lease_ms:
            # A younger store may have forgotten a lease; by then its holder has renewed it.
            fence = Fence(mine.epoch, mine.inherited[0][0])
            if view is not None and view.outranks(fence) and not mine.is_claimed:
                # From a newer owner, or from a deleted group of the same name: the group decides.
                self._miss(mine, Claim(mine.number, mine.settled_to), effects)
                return
            mine.fence = fence
            mine.is_stored = True
            effects.append(ChangeToken(Renew(mine.number, fence, mine.is_claimed)))
            effects.append(Query(mine.number))

    def _end(self, mine: OwnedPartition) -> Effects:
        assert mine.running is not None
        fence, mine.running = mine.running.fence, None
        mine.state = moved(mine.state, Event.FINISHED)
        effects: Effects = []
        if mine.state is State.GONE:
            del self.partitions[mine.number]
        if mine.state is State.GONE or fence.epoch != mine.epoch:
            effects.append(ChangeToken(Revoke(mine.number, fence)))
        self._go_on(mine, effects)
        return effects

    def _check_on(self, mine: OwnedPartition, effects: Effects) -> None:
        if mine.state is State.IDLE:
            effects.append(Query(mine.number))
        elif mine.state is State.CHECKING:
            self._check(mine, effects)
        elif mine.state is State.FENCED:
            effects.append(Claim(mine.number, mine.settled_to))
        else:
            # The last records may be ones that a consumer never gets, such as transaction markers.
            self._miss(mine, Probe(mine.number), effects)

    def _heal(self, mine: OwnedPartition, view: TokenView | None, effects: Effects) -> None:
        if view and view.fence == mine.fence and (view.state == "idle" or view.is_leased):
            mine.misses = 0
        elif view and view.fence > mine.fence:
            self._miss(mine, Claim(mine.number, mine.settled_to), effects)
        else:
            self._miss(mine, Probe(mine.number), effects)

    def _miss(self, mine: OwnedPartition, remedy: Effect, effects: Effects) -> None:
        mine.misses += 1
        if mine.misses >= self.limits.heal_misses:
            mine.misses = 0
            self.counts["probes" if isinstance(remedy, Probe) else "claims"] += 1
            effects.append(remedy)

    def _rebuild(self, effects: Effects) -> None:
        for mine in self.partitions.values():
            mine.renew_at_ms = 0
            if mine.state is State.IDLE:
                mine.misses = 0
                self.counts["probes"] += 1
                effects.append(Probe(mine.number))

    def _inherit(
        self, mine: OwnedPartition, offset: int, job_id: str | None, effects: Effects
    ) -> None:
        if job_id is None or offset in mine.open:
            return
        if offset in self._unwritten.get(mine.number, ()):
            mine.open.add(offset)
        elif not job_id or len(mine.inherited) >= self.limits.inherited_max:
            self._refuse(mine, offset, job_id, effects)
        else:
            mine.open.add(offset)
            mine.inherited.append((offset, job_id))

    def _run(
        self,
        mine: OwnedPartition,
        offset: int,
        job_id: str,
        effects: Effects,
        *,
        is_inherited: bool,
    ) -> None:
        mine.running = Running(offset, job_id, mine.fence)
        mine.is_stored = True
        mine.renew_at_ms = 0
        mine.misses = 0
        mine.open.add(offset)
        effects.append(Run(mine.number, offset, job_id, mine.fence, is_inherited))

    def _refuse(self, mine: OwnedPartition, offset: int, job_id: str, effects: Effects) -> None:
        self.counts["refused"] += 1
        mine.open.add(offset)
        self._unwritten.setdefault(mine.number, set()).add(offset)
        effects.append(Refuse(mine.number, offset, job_id))

    def _go_on(self, mine: OwnedPartition, effects: Effects) -> None:
        """Move on from READING or IDLE as far as possible without another event."""
        if mine.state is State.READING and mine.inherited:
            if mine.is_free:
                mine.state = moved(mine.state, Event.NEXT)
                self._check(mine, effects)
            else:
                mine.state = moved(mine.state, Event.FOUND)
                effects.append(Query(mine.number))
        elif mine.state in (State.READING, State.IDLE) and mine.newer is not None:
            self.counts["fenced"] += 1
            mine.state = moved(mine.state, Event.NEWER)
            effects.append(Claim(mine.number, mine.settled_to))
        elif mine.state is State.READING and mine.position >= mine.inherited_end:
            mine.state = moved(mine.state, Event.CAUGHT_UP)
            self._put(mine, effects)
        self._commit(mine, effects)

    def _put(self, mine: OwnedPartition, effects: Effects) -> None:
        mine.fence = Fence(mine.epoch, mine.position)
        mine.misses = 0
        effects.append(ChangeToken(Put(mine.number, mine.fence, mine.is_claimed)))
        mine.is_claimed = False
        mine.is_stored = True

    def _check(self, mine: OwnedPartition, effects: Effects) -> None:
        offset, job_id = mine.inherited[0]
        effects.append(Check(mine.number, offset, job_id, mine.epoch))

    def _leave(self, mine: OwnedPartition) -> None:
        mine.state = moved(mine.state, Event.REVOKED)

    def _commit(self, mine: OwnedPartition, effects: Effects) -> None:
        settled = mine.settled_to
        if settled > mine.committed and mine.state not in (State.FENCED, State.GONE):
            mine.committed = settled
            effects.append(Commit(mine.number, settled))
