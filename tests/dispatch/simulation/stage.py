"""A play: some nodes, some jobs, a time of faults, and then a time in which all must end well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.dispatch.simulation.group import SESSION_MS, Group
from tests.dispatch.simulation.node import Node
from tests.dispatch.simulation.world import (
    LIMITS,
    TRIP_MS_MAX,
    Done,
    Record,
    Violation,
    World,
)

from headrace.dispatch.owned_partition import State
from headrace.dispatch.tokens.scheduler import Policy, Scheduler

FAULTS_MS = 2_500
# All ends well by then, however long the jobs were that had begun.
END_MS = 60_000
SAMPLE_MS = 100
# Healing, and the trips of what is put, looked at, probed and put again.
TOKEN_BACK_MS_MAX = LIMITS.healing_ms_max + 12 * TRIP_MS_MAX + SAMPLE_MS


@dataclass(slots=True)
class WatchedSharing(Scheduler):
    """Counts for every waiting node the tokens that others got before it."""

    waited: dict[str, Counter[str]] = field(default_factory=dict)

    def ask(self, node: str, want: int, weight: int) -> None:
        Scheduler.ask(self, node, want, weight)
        if node in self.waiters:
            self.waited.setdefault(node, Counter())
        else:
            self.waited.pop(node, None)

    def next(self, policy: Policy) -> str | None:
        node = Scheduler.next(self, policy)
        if node is None:
            return None
        self.waited[node] = Counter()
        if node not in self.waiters:
            del self.waited[node]
        for other, turns in self.waited.items():
            if other != node and policy == "fair":
                turns[node] += 1
                if turns[node] > 1:
                    raise Violation(f"{node} got {turns[node]} tokens while {other} waited")
        return node


class Play:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.chance = world.chance
        self.group = Group(world, is_eager=self.chance.random() < 0.5)
        world.logs += [[] for _ in range(self.chance.randint(1, 5))]
        world.on_record = self._on_record
        world.on_done = self._on_done
        self.spools: dict[str, set[str]] = {}
        self.nodes: dict[str, Node] = {}
        self.jobs: list[str] = []
        # When each partition last had its token, a job, or a reason not to have one.
        self.well_ms: dict[int, int] = {}
        self.healed_ms = 0
        self._watch_sharing()

    def run(self) -> None:
        """Raises a Violation with the seed in its text."""
        try:
            self._run()
        except Exception as trouble:
            raise Violation(f"seed {self.seed}, {self.world.now_ms} ms: {trouble!r}") from trouble

    def _run(self) -> None:
        world, chance = self.world, self.chance
        for number in range(chance.randint(2, 4)):
            world.after(chance.randrange(300), self.start, f"node {number}")
        for number in range(chance.randint(5, 20)):
            world.after(chance.randrange(FAULTS_MS), self.submit, f"job {number}")
        deeds = self._deeds()
        for _ in range(chance.randint(0, 8)):
            world.after(chance.randrange(FAULTS_MS), chance.choice(deeds))
        for at_ms in range(0, FAULTS_MS, 300):
            world.after(at_ms, world.save_store)
        world.run_until(FAULTS_MS)
        self.end_well()

    def end_well(self) -> None:
        """No more faults: every job finishes and every token comes back, in time."""
        world = self.world
        self.heal()
        self.healed_ms = world.now_ms
        world.after(SAMPLE_MS, self._sample)
        world.run_until(self.healed_ms + END_MS, self.is_over)
        if not self.is_over():
            left = {name: sorted(spool) for name, spool in self.spools.items() if spool}
            raise Violation(f"not over: {left}, {self._unwell()}")
        unfinished = set(self.jobs) - world.finished
        if unfinished:
            raise Violation(f"forgotten: {sorted(unfinished)}")

    def is_over(self) -> bool:
        return (
            not any(self.spools.values())
            and self.group.is_stable
            and len(self.world.finished) == len(self.jobs)
            and not self._unwell()
        )

    # Checks after the faults

    def _unwell(self) -> list[int]:
        """Partitions without their token, which nothing excuses."""
        world = self.world
        flying = {flight.partition for flight in world.flights}
        found = []
        for partition in range(len(world.logs)):
            node = self.nodes.get(self.group.owners.get(partition, ""))
            mine = node.owner.partitions.get(partition) if node else None
            entry = world.table.entries.get(partition)
            is_well = partition in flying or (
                mine is not None
                and entry is not None
                and mine.state is State.IDLE
                and entry.fence == mine.fence
                and (entry.state == "idle" or entry.until_ms > world.now_ms)
            )
            if not is_well:
                found.append(partition)
        return found

    def _sample(self) -> None:
        world = self.world
        unwell = self._unwell()
        for partition in range(len(world.logs)):
            if partition not in unwell:
                self.well_ms[partition] = world.now_ms
            since_ms = max(self.well_ms.get(partition, 0), self.group.settled_ms, self.healed_ms)
            if world.now_ms - since_ms > TOKEN_BACK_MS_MAX:
                raise Violation(f"partition {partition} has had no token since {since_ms} ms")
        world.after(SAMPLE_MS, self._sample)

    # Nodes and jobs

    def start(self, name: str) -> None:
        node = Node(self.world, self.group, name, self.spools.setdefault(name, set()))
        node.on_offer = self._on_offer
        self.nodes[name] = node
        self.group.join(node)

    def submit(self, job: str) -> None:
        living = [node for node in self.nodes.values() if node.is_alive and not node.is_frozen]
        if living:
            self.jobs.append(job)
            self.chance.choice(living).submit(job)

    def _on_record(self, partition: int) -> None:
        for node in self.nodes.values():
            if partition in node.positions:
                node.later(self.world.trip_ms(200), node.poll, partition)

    def _on_done(self, done: Done) -> None:
        for node in self.nodes.values():
            node.hear(done)

    def _on_offer(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.is_alive and not node.is_frozen:
            node.collect()

    def _watch_sharing(self) -> None:
        self.world.table.scheduler = WatchedSharing()

    # Faults

    def _deeds(self) -> list[Callable[[], None]]:
        deeds = [self.crash, self.leave, self.group.rebalance, self.null, self.grow]
        if self.chance.random() < 0.5:
            deeds += [self.flush]
        if self.chance.random() < 0.2:
            deeds += [self.delete_group]
        if not self.world.is_gentle:
            deeds += [self.freeze, self.freeze, self.flush, self.fail_over, self.stop_store]
        return deeds

    def _one(self) -> Node | None:
        living = [node for node in self.nodes.values() if node.is_alive and not node.is_frozen]
        return self.chance.choice(living) if living else None

    def crash(self) -> None:
        node = self._one()
        if node is not None:
            node.die()
            self.world.after(SESSION_MS, self._expel, node)
            self.world.after(self.chance.randrange(1_000), self._restart, node)

    def delete_group(self) -> None:
        """All nodes die, the group is deleted, and a new one begins beside the old tokens."""
        for node in self.nodes.values():
            node.is_frozen = False
            node.die()
            self.world.after(1 + self.chance.randrange(500), self._restart, node)
        self.group.delete()
        self.world.forget_fences()

    def leave(self) -> None:
        """A rolling deploy: the node says goodbye and is then replaced."""
        node = self._one()
        if node is not None:
            node.lose_everything()
            self.group.leave(node.name)
            self.world.after(self.chance.randrange(300), self._replace, node)

    def _replace(self, node: Node) -> None:
        if node.is_alive:
            node.die()
            self.world.after(self.chance.randrange(200), self._restart, node)

    def _restart(self, node: Node) -> None:
        if self.nodes[node.name] is node:
            self.start(node.name)

    def _expel(self, node: Node) -> None:
        is_away = not node.is_alive or node.is_frozen
        if self.group.members.get(node.name) is node and is_away:
            self.group.leave(node.name)

    def freeze(self) -> None:
        node = self._one()
        if node is not None:
            node.is_frozen = True
            self.world.after(SESSION_MS, self._expel, node)
            self.world.after(self.chance.randrange(3 * LIMITS.lease_ms), self._thaw, node)

    def _thaw(self, node: Node) -> None:
        if not node.is_frozen:
            return
        node.thaw()
        if node.is_alive and self.group.members.get(node.name) is not node:
            # For a while it does not know that the group has gone on without it.
            self.world.after(self.chance.randrange(300), self._come_back, node)

    def _come_back(self, node: Node) -> None:
        is_back = self.group.members.get(node.name) is node
        if node.is_alive and self.nodes[node.name] is node and not is_back:
            node.lose_everything()
            self.group.join(node)

    def flush(self) -> None:
        self.world.flush_store()
        self._watch_sharing()

    def fail_over(self) -> None:
        self.world.fail_over()
        self._watch_sharing()

    def stop_store(self) -> None:
        self.world.store_is_down = True
        self.world.after(self.chance.randrange(800), self._start_store)

    def _start_store(self) -> None:
        self.world.store_is_down = False

    def null(self) -> None:
        partition = self.chance.randrange(len(self.world.logs))
        self.world.append(partition, Record(None, None))

    def grow(self) -> None:
        if len(self.world.logs) < 6:
            self.world.logs.append([])
            self.group.rebalance()

    def heal(self) -> None:
        self.world.is_faulty = False
        self.world.store_is_down = False
        for node in list(self.nodes.values()):
            if node.is_frozen:
                self._thaw(node)
            if not node.is_alive:
                self._restart(node)


def play(seed: int) -> None:
    """Run one seed; a Violation says what broke."""
    Play(seed).run()
