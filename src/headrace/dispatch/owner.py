"""The owner's side of the protocol, pure: partitions are assigned, items come, tokens go out.

A node has one. Events go in by name with the time, effects come out in the order in which they
must begin. The token goes back when the worker ends, without waiting for its outcome to be
durable: one item at a time runs anyway, and only the commit needs the outcome.
"""

from __future__ import annotations

from collections import Counter

from headrace.dispatch.effects import (
    Check,
    Claim,
    Commit,
    Effect,
    Look,
    Probe,
    Refuse,
    Run,
    Seek,
    Store,
)
from headrace.dispatch.fences import Fence
from headrace.dispatch.limits import Limits
from headrace.dispatch.partition import Partition, Running
from headrace.dispatch.states import Event, State, moved
from headrace.dispatch.tokens import Answer, Put, Renew, Revoke, Seen

Effects = list[Effect]


class Owner:
    """The partitions of one node."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.counts: Counter[str] = Counter()
        self.partitions: dict[int, Partition] = {}
        # Outcomes on their way to the done topic; they outlive an assignment.
        self._unwritten: dict[int, set[int]] = {}
        self._born = ""
        self._look_at_ms = 0

    @property
    def running(self) -> dict[int, Running]:
        """The items that run here, by partition."""
        return {p.number: p.running for p in self.partitions.values() if p.running}

    def assigned(self, partition: int, epoch: int, next_offset: int, end_offset: int) -> Effects:
        """The partition is ours from `next_offset`; its log ends at `end_offset` by now."""
        before = self.partitions.get(partition)
        if before is not None and before.state is not State.LEFT:
            # A client that was not told of the loss in between.
            self._leave(before)
        fence = Fence(epoch, next_offset)
        mine = Partition(partition, epoch, next_offset, end_offset, fence)
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
        """The partition is no longer ours; an item that runs goes on."""
        mine = self.partitions.get(partition)
        if mine is None or mine.state is State.LEFT:
            return []
        self._leave(mine)
        if mine.running is not None:
            # The next owner looks for this lease very soon.
            return [Store(Renew(partition, mine.running.fence))]
        del self.partitions[partition]
        # A lease of an earlier owner, for which this one has only waited, must stay.
        return [Store(Revoke(partition, mine.fence))] if mine.is_stored else []

    def record(
        self, partition: int, offset: int, fence: Fence | None, item_id: str | None
    ) -> Effects:
        """A record was read; one without a value has no id and only gives the token back.

        One with a value that no node has sent has an empty id and is refused.
        """
        mine = self.partitions.get(partition)
        if mine is None or mine.state is State.LEFT or offset < mine.position:
            return []
        mine.position = offset + 1
        effects: Effects = []
        if mine.state is State.FENCED:
            return effects
        if fence is not None and (fence, item_id) == mine.last and offset not in mine.open:
            # A send that was tried again; a refusal would make the submitter send it once more.
            # Its commit waits for the first one's outcome.
            self.counts["copies"] += 1
        elif offset < mine.inherited_end:
            self._inherit(mine, offset, item_id, effects)
        elif item_id is None:
            if mine.state is State.IDLE:
                self.counts["given back by a record"] += 1
                self._put(mine, effects)
        elif mine.newer is not None:
            return effects
        elif fence is not None and fence > mine.fence:
            mine.newer = offset
        elif mine.state is State.IDLE and fence == mine.fence:
            mine.state = moved(mine.state, Event.ITEM)
            mine.last = (fence, item_id)
            self._run(mine, offset, item_id, effects, is_inherited=False)
        else:
            self._refuse(mine, offset, item_id, effects)
        self._go_on(mine, effects)
        return effects

    def finished(self, partition: int, offset: int) -> Effects:
        """The worker ended, however; its outcome is being written, and `written` will follow."""
        mine = self.partitions.get(partition)
        self._unwritten.setdefault(partition, set()).add(offset)
        if mine is None or mine.running is None or mine.running.offset != offset:
            return []
        if mine.state is State.LEFT:
            # The next owner looks for the outcome as soon as the lease is gone.
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
        """The answer to `Check`."""
        partition, offset = check.partition, check.offset
        mine = self.partitions.get(partition)
        if mine is None or mine.state is not State.CHECKING or mine.epoch != check.epoch:
            return []
        if mine.inherited[0][0] != offset:
            return []
        effects: Effects = []
        _, item_id = mine.inherited.popleft()
        if is_settled:
            mine.state = moved(mine.state, Event.SETTLED)
            mine.open.discard(offset)
        else:
            mine.state = moved(mine.state, Event.UNSETTLED)
            mine.fence = Fence(mine.epoch, offset)
            self.counts["inherited"] += 1
            self._run(mine, offset, item_id, effects, is_inherited=True)
            effects.append(Store(Renew(partition, mine.fence)))
        self._go_on(mine, effects)
        return effects

    def claimed(self, partition: int) -> Effects:
        """The group has accepted our commit: the partition is ours, whatever was seen."""
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
            return [Look(partition)]
        mine.state = moved(mine.state, Event.CLAIMED)
        # What came since is run here like an earlier owner's items, if nobody else has settled it.
        assert mine.newer is not None
        mine.inherited_end = mine.position
        mine.position = mine.newer
        mine.newer, mine.is_free = None, False
        effects.append(Seek(partition, mine.position))
        return effects

    def answered(self, answer: Answer) -> Effects:
        """An exchange was answered."""
        effects: Effects = []
        if answer.born != self._born:
            if self._born:
                self.counts["stores lost"] += 1
                self._rebuild(effects)
            self._born = answer.born
        for partition, seen in answer.seen.items():
            mine = self.partitions.get(partition)
            if mine is None:
                continue
            if mine.state is State.WAITING:
                self._take_over(mine, seen, answer.age_ms, effects)
            elif mine.state is State.IDLE:
                self._heal(mine, seen, effects)
        return effects

    def tick(self, now_ms: int) -> Effects:
        """Renew leases, look for tokens; called every `tick_ms`."""
        effects: Effects = []
        is_time_to_look = now_ms >= self._look_at_ms
        if is_time_to_look:
            self._look_at_ms = now_ms + self.limits.heal_interval_ms
        for mine in self.partitions.values():
            if mine.running is not None:
                if now_ms >= mine.renew_at_ms:
                    mine.renew_at_ms = now_ms + self.limits.renew_ms
                    effects.append(Store(Renew(mine.number, mine.running.fence)))
            elif mine.state is State.WAITING:
                effects.append(Look(mine.number))
            elif is_time_to_look:
                self._look_after(mine, effects)
        return effects

    def _take_over(
        self, mine: Partition, seen: Seen | None, store_age_ms: int, effects: Effects
    ) -> None:
        """Have a lease of our own before an earlier owner's item is run here."""
        if seen is not None and seen.is_leased:
            if seen.fence.epoch == mine.epoch:
                mine.is_free = True
                mine.state = moved(mine.state, Event.FREE)
                self._check(mine, effects)
        elif store_age_ms >= self.limits.lease_ms:
            # A younger store has perhaps forgotten a lease, which its holder renews by then.
            fence = Fence(mine.epoch, mine.inherited[0][0])
            if seen is not None and seen.outranks(fence) and not mine.is_claimed:
                # Of a newer owner, or of a deleted group of the same name: the group knows.
                self._miss(mine, Claim(mine.number, mine.settled_to), effects)
                return
            mine.fence = fence
            mine.is_stored = True
            effects.append(Store(Renew(mine.number, fence, mine.is_claimed)))
            effects.append(Look(mine.number))

    def _end(self, mine: Partition) -> Effects:
        assert mine.running is not None
        fence, mine.running = mine.running.fence, None
        mine.state = moved(mine.state, Event.FINISHED)
        effects: Effects = []
        if mine.state is State.GONE:
            del self.partitions[mine.number]
        if mine.state is State.GONE or fence.epoch != mine.epoch:
            effects.append(Store(Revoke(mine.number, fence)))
        self._go_on(mine, effects)
        return effects

    def _look_after(self, mine: Partition, effects: Effects) -> None:
        if mine.state is State.IDLE:
            effects.append(Look(mine.number))
        elif mine.state is State.CHECKING:
            self._check(mine, effects)
        elif mine.state is State.FENCED:
            effects.append(Claim(mine.number, mine.settled_to))
        else:
            # The last records before the end may be none that a consumer gets to see.
            self._miss(mine, Probe(mine.number), effects)

    def _heal(self, mine: Partition, seen: Seen | None, effects: Effects) -> None:
        if seen and seen.fence == mine.fence and (seen.state == "idle" or seen.is_leased):
            mine.misses = 0
        elif seen and seen.fence > mine.fence:
            self._miss(mine, Claim(mine.number, mine.settled_to), effects)
        else:
            self._miss(mine, Probe(mine.number), effects)

    def _miss(self, mine: Partition, cure: Effect, effects: Effects) -> None:
        mine.misses += 1
        if mine.misses >= self.limits.heal_misses:
            mine.misses = 0
            self.counts["probes" if isinstance(cure, Probe) else "claims"] += 1
            effects.append(cure)

    def _rebuild(self, effects: Effects) -> None:
        for mine in self.partitions.values():
            mine.renew_at_ms = 0
            if mine.state is State.IDLE:
                mine.misses = 0
                self.counts["probes"] += 1
                effects.append(Probe(mine.number))

    def _inherit(self, mine: Partition, offset: int, item_id: str | None, effects: Effects) -> None:
        if item_id is None or offset in mine.open:
            return
        if offset in self._unwritten.get(mine.number, ()):
            mine.open.add(offset)
        elif not item_id or len(mine.inherited) >= self.limits.inherited_max:
            self._refuse(mine, offset, item_id, effects)
        else:
            mine.open.add(offset)
            mine.inherited.append((offset, item_id))

    def _run(
        self, mine: Partition, offset: int, item_id: str, effects: Effects, *, is_inherited: bool
    ) -> None:
        mine.running = Running(offset, item_id, mine.fence)
        mine.is_stored = True
        mine.renew_at_ms = 0
        mine.misses = 0
        mine.open.add(offset)
        effects.append(Run(mine.number, offset, item_id, mine.fence, is_inherited))

    def _refuse(self, mine: Partition, offset: int, item_id: str, effects: Effects) -> None:
        self.counts["refused"] += 1
        mine.open.add(offset)
        self._unwritten.setdefault(mine.number, set()).add(offset)
        effects.append(Refuse(mine.number, offset, item_id))

    def _go_on(self, mine: Partition, effects: Effects) -> None:
        """From reading and from idle, as far as it goes without news."""
        if mine.state is State.READING and mine.inherited:
            if mine.is_free:
                mine.state = moved(mine.state, Event.NEXT)
                self._check(mine, effects)
            else:
                mine.state = moved(mine.state, Event.FOUND)
                effects.append(Look(mine.number))
        elif mine.state in (State.READING, State.IDLE) and mine.newer is not None:
            self.counts["fenced"] += 1
            mine.state = moved(mine.state, Event.NEWER)
            effects.append(Claim(mine.number, mine.settled_to))
        elif mine.state is State.READING and mine.position >= mine.inherited_end:
            mine.state = moved(mine.state, Event.CAUGHT_UP)
            self._put(mine, effects)
        self._commit(mine, effects)

    def _put(self, mine: Partition, effects: Effects) -> None:
        mine.fence = Fence(mine.epoch, mine.position)
        mine.misses = 0
        effects.append(Store(Put(mine.number, mine.fence, mine.is_claimed)))
        mine.is_claimed = False
        mine.is_stored = True

    def _check(self, mine: Partition, effects: Effects) -> None:
        offset, item_id = mine.inherited[0]
        effects.append(Check(mine.number, offset, item_id, mine.epoch))

    def _leave(self, mine: Partition) -> None:
        mine.state = moved(mine.state, Event.REVOKED)

    def _commit(self, mine: Partition, effects: Effects) -> None:
        settled = mine.settled_to
        if settled > mine.committed and mine.state not in (State.FENCED, State.GONE):
            mine.committed = settled
            effects.append(Commit(mine.number, settled))
