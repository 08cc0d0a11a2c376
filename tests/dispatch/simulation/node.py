"""A node: the two pure machines and what the runtime does for them, in a world of faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.dispatch.simulation.group import Group
from tests.dispatch.simulation.world import LIMITS, Done, Flight, Record, Violation, World

from headrace.dispatch import effects as fx
from headrace.dispatch.owner_machine import OwnerMachine
from headrace.dispatch.records import OutcomeState
from headrace.dispatch.submitter_machine import SubmitterMachine
from headrace.dispatch.tokens.store import Answer, Token, TokenChange

LONG_JOB_MS = 2 * LIMITS.lease_ms


class Node:
    """One process; a restart is a new one with the same spool."""

    def __init__(self, world: World, group: Group, name: str, spool: set[str]) -> None:
        self.world = world
        self.group = group
        self.name = name
        self.spool = spool
        self.owner = OwnerMachine(LIMITS)
        self.sender = SubmitterMachine()
        self.is_alive = True
        self.is_frozen = False
        self.generation = 0
        self.positions: dict[int, int] = {}
        self._thawing: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._changes: list[TokenChange] = []
        self._looks: set[int] = set()
        self._is_exchanging = False
        self._asked_ms = -LIMITS.ask_interval_ms
        self._asked_want = 0
        for done in world.done:
            self._hear(done)
        self.sender.submitted(sorted(spool))
        self._tick()
        self._exchange()

    # Life

    def die(self) -> None:
        self.is_alive = False
        self.world.flights = {f for f in self.world.flights if f.node != self.name}

    def thaw(self) -> None:
        self.is_frozen = False
        while self._thawing and not self.is_frozen:
            deed, args = self._thawing.popleft()
            deed(*args)

    def later(self, delay_ms: int, deed: Callable[..., None], *args: Any) -> None:
        """Something that this process does, if it still lives by then."""
        self.world.after(delay_ms, self._do, deed, args)

    def _do(self, deed: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.is_frozen:
            self._thawing.append((deed, args))
        elif self.is_alive:
            deed(*args)

    # The group

    def assign(self, partition: int, epoch: int, next_offset: int) -> None:
        self._do(self._assigned, (partition, epoch, next_offset))

    def _assigned(self, partition: int, epoch: int, next_offset: int) -> None:
        self.positions[partition] = next_offset
        end_offset = len(self.world.logs[partition])
        self._apply(self.owner.assigned(partition, epoch, next_offset, end_offset))
        self.later(self.world.trip_ms(), self.poll, partition)

    def revoke(self, partition: int) -> None:
        self._do(self._revoked, (partition,))

    def _revoked(self, partition: int) -> None:
        self.positions.pop(partition, None)
        self._apply(self.owner.revoked(partition))

    def lose_everything(self) -> None:
        """The group has gone on without us."""
        for partition in sorted(self.positions):
            self._revoked(partition)

    # The work topic

    def poll(self, partition: int) -> None:
        log = self.world.logs[partition]
        while (offset := self.positions.get(partition, len(log))) < len(log):
            self.positions[partition] = offset + 1
            record = log[offset]
            self._apply(self.owner.record(partition, offset, record.fence, record.job))

    def _send(self, job: str, token: Token) -> None:
        world = self.world
        trip_ms = world.trip_ms(2 * LIMITS.lease_ms)
        record = Record(token.fence, job)
        if world.happens(0.03):
            self.later(trip_ms, self._not_sent, job, token, True)
            return
        if world.happens(0.03):
            self.later(trip_ms, self._not_sent, job, token, False)
            if world.happens(0.5):
                return
        world.after(trip_ms, world.append, token.partition, record)
        if world.happens(0.1):
            # The client library has tried again what had arrived.
            again_ms = trip_ms + world.trip_ms(2 * LIMITS.lease_ms)
            world.after(again_ms, world.append, token.partition, record)

    def _not_sent(self, job: str, token: Token, surely: bool) -> None:
        self._apply(self.sender.failed(token, surely=surely))
        self.later(self.world.trip_ms(300), self._again, job, token)

    def _again(self, job: str, token: Token) -> None:
        self.sender.again(job, token)
        self._exchange()

    def submit(self, job: str) -> None:
        self.spool.add(job)
        self.sender.submitted([job])
        self._exchange()

    # Work and what became of it

    def _run(self, run: fx.Run) -> None:
        world = self.world
        flight = Flight(run.partition, self.name, run.fence.epoch)
        newest = self.group.epochs.get(run.partition)
        if not run.is_inherited and run.fence != world.logs[run.partition][run.offset].fence:
            raise Violation(f"{run} carries another fence")
        is_newest = run.fence.epoch == newest
        world.take_off(flight, run.fence, run.offset, is_newest=is_newest)
        lasts_ms = world.chance.randrange(LONG_JOB_MS if world.happens(0.1) else 30)
        self.later(lasts_ms, self._ran, run, flight)

    def _ran(self, run: fx.Run, flight: Flight) -> None:
        self.world.flights.discard(flight)
        outcome: OutcomeState = "failed" if self.world.chance.random() < 0.1 else "done"
        self._write(run.partition, run.offset, run.job_id, outcome)
        self._apply(self.owner.finished(run.partition, run.offset))

    def _write(self, partition: int, offset: int, job: str, outcome: OutcomeState) -> None:
        fence = self.world.logs[partition][offset].fence
        done = Done(job, outcome, partition, offset, fence)
        self.later(self.world.trip_ms(300), self._written, done)

    def _written(self, done: Done) -> None:
        self.world.write_done(done)
        self.later(
            self.world.trip_ms(),
            lambda: self._apply(self.owner.written(done.partition, done.offset)),
        )

    def hear(self, done: Done) -> None:
        self.later(self.world.trip_ms(300), self._hear, done)

    def _hear(self, done: Done) -> None:
        if done.job in self.spool:
            token = Token(done.partition, done.fence) if done.fence else None
            self.sender.outcome(done.job, done.outcome, token)
            if done.outcome == "refused":
                self._exchange()
            else:
                self.spool.discard(done.job)

    # What the machines ask for

    def _apply(self, effects: list[fx.Effect]) -> None:
        world = self.world
        for effect in effects:
            if isinstance(effect, fx.ChangeToken):
                self._changes.append(effect.change)
            elif isinstance(effect, fx.Query):
                self._looks.add(effect.partition)
            elif isinstance(effect, fx.Run):
                self._run(effect)
            elif isinstance(effect, fx.Refuse):
                self._check_refusal(effect)
                self._write(effect.partition, effect.offset, effect.job_id, "refused")
            elif isinstance(effect, fx.Check):
                self.later(world.trip_ms(500), self._checked, effect)
            elif isinstance(effect, fx.Commit):
                if not world.happens(0.1):
                    self.later(world.trip_ms(200), self._commit, effect, self.generation)
            elif isinstance(effect, fx.Claim):
                self.later(world.trip_ms(200), self._claim, effect, self.generation)
            elif isinstance(effect, fx.Probe):
                world.after(world.trip_ms(500), world.append, effect.partition, Record(None, None))
            elif isinstance(effect, fx.Seek):
                self.positions[effect.partition] = effect.offset
                self.later(world.trip_ms(), self.poll, effect.partition)
            else:
                self._send(effect.job_id, effect.token)
        if self._changes or self._looks:
            self._exchange()

    def _checked(self, check: fx.Check) -> None:
        is_settled = self.world.is_settled(check.job_id, check.partition, check.offset)
        self._apply(self.owner.checked(check, is_settled))

    def _commit(self, commit: fx.Commit, generation: int) -> None:
        self.group.commit(self.name, generation, commit.partition, commit.next_offset)

    def _claim(self, claim: fx.Claim, generation: int) -> None:
        if self.group.commit(self.name, generation, claim.partition, claim.next_offset):
            self._apply(self.owner.claimed(claim.partition))

    def _tick(self) -> None:
        self._apply(self.owner.tick(self.world.now_ms))
        if self.sender.want and self.world.now_ms - self._asked_ms >= LIMITS.ask_interval_ms:
            self._exchange()
        self.later(LIMITS.tick_ms, self._tick)

    def _check_refusal(self, refuse: fx.Refuse) -> None:
        log = self.world.logs[refuse.partition]
        running = self.owner.running.get(refuse.partition)
        if running is not None and log[running.offset] == log[refuse.offset]:
            raise Violation(f"{refuse} is a copy of the job that runs")

    # The store

    def _exchange(self) -> None:
        """One call at a time; what comes up meanwhile goes with the next one."""
        if self._is_exchanging:
            return
        self._is_exchanging = True
        self.later(self.world.trip_ms(500), self._call)

    def _call(self) -> None:
        world = self.world
        changes, looks = list(self._changes), sorted(self._looks)
        call = (self.name, changes, looks, self.sender.want)
        if world.store_is_down or world.happens(0.03):
            # It may have been carried out all the same, even much later.
            if not world.store_is_down or world.happens(0.5):
                world.after(world.trip_ms(LIMITS.lease_ms), self._carried_out, *call)
            self.later(50, self._call)
            return
        if world.happens(0.03):
            world.after(world.trip_ms(LIMITS.lease_ms), self._carried_out, *call)
        answer = self._carried_out(*call)
        del self._changes[: len(changes)]
        self._looks.difference_update(looks)
        self._asked_ms, self._asked_want = world.now_ms, self.sender.want
        self.later(world.trip_ms(200), self._answered, answer)

    def _carried_out(
        self, name: str, changes: list[TokenChange], looks: list[int], want: int
    ) -> Answer:
        table = self.world.table
        answer = table.exchange(name, changes, self.world.now_ms, want=want, query=looks)
        for node in {table.entries[p].node for p in table.offered}:
            self.world.after(self.world.trip_ms(), self.on_offer, node)
        return answer

    # Set by the stage: a node's wait for offers ends.
    on_offer: Callable[[str], None]

    def collect(self) -> None:
        tokens = self.world.table.collect(self.name, self.world.now_ms)
        if tokens and not self.world.happens(0.03):
            self.later(self.world.trip_ms(100), self._granted, tokens)

    def _answered(self, answer: Answer) -> None:
        self._is_exchanging = False
        self._apply(self.owner.answered(answer))
        self._granted(answer.granted)
        if self._changes or self._looks or self.sender.want > self._asked_want:
            self._exchange()

    def _granted(self, tokens: list[Token]) -> None:
        self._apply(self.sender.granted(tokens))
